// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"

	"github.com/google/uuid"
	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
)

// open are the resources that need no account, and the login.
func (s *Service) open() map[string]methods {
	return map[string]methods{
		"/redfish": get(func(*call) map[string]any { return map[string]any{"v1": root + "/"} }),
		root:       get(serviceRoot),
		root + "/SessionService/Sessions": {
			http.MethodPost: logIn,
			http.MethodGet: func(c *call) (result, *fault) {
				systems, refusal := s.authenticate(c.Request)
				if refusal != nil {
					return result{}, refusal
				}
				var paths []string
				for _, session := range s.sessions.list(systems) {
					paths = append(paths, sessionPath(session.id()))
				}
				return result{body: collection(root+"/SessionService/Sessions", "SessionCollection", "Sessions", paths)}, nil
			},
		},
	}
}

// service are the resources that need an account of any server.
func (s *Service) service() map[string]methods {
	lists := func(path, kind, name string, member func(*System) string) methods {
		return get(func(c *call) map[string]any {
			var members []string
			for _, system := range c.caller {
				members = append(members, member(system))
			}
			return collection(path, kind, name, members)
		})
	}
	return map[string]methods{
		root + "/Systems":        lists(root+"/Systems", "ComputerSystemCollection", "Systems", (*System).Path),
		root + "/Managers":       lists(root+"/Managers", "ManagerCollection", "Managers", (*System).managerPath),
		root + "/Chassis":        lists(root+"/Chassis", "ChassisCollection", "Chassis", (*System).chassisPath),
		root + "/SessionService": get(sessionService),
		root + "/SessionService/Sessions/{session}": {
			http.MethodGet:    reading(readSession),
			http.MethodDelete: logOut,
		},
	}
}

func serviceRoot(c *call) map[string]any {
	name := "rack"
	if len(c.service.systems) == 1 {
		name = c.service.systems[0].Name()
	}
	return document(gofish.Service{
		Entity:    schemas.Entity{ODataID: root + "/", ID: "RootService", Name: "Root Service"},
		ODataType: "#ServiceRoot.v1_15_0.ServiceRoot", RedfishVersion: "1.15.0", Product: "Emulated BMC", Vendor: "Emulated",
		UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("service "+name)).String(),
	}, map[string]any{
		"Systems": link(root + "/Systems"), "Managers": link(root + "/Managers"), "Chassis": link(root + "/Chassis"),
		"SessionService": link(root + "/SessionService"),
		"Links":          map[string]any{"Sessions": link(root + "/SessionService/Sessions")},
	})
}

func sessionService(*call) map[string]any {
	return document(schemas.SessionService{
		Entity:    schemas.Entity{ODataID: root + "/SessionService", ID: "SessionService", Name: "Session Service"},
		ODataType: "#SessionService.v1_1_8.SessionService", ServiceEnabled: true, SessionTimeout: uint(sessionTimeout.Seconds()),
		Status: healthy(),
	}, map[string]any{"Sessions": link(root + "/SessionService/Sessions")})
}

func collection(path, kind, name string, members []string) map[string]any {
	return map[string]any{
		"@odata.id": path, "@odata.type": "#" + kind + "." + kind, "Name": name,
		"Members@odata.count": len(members), "Members": links(members...),
	}
}

func healthy() schemas.Status {
	return schemas.Status{State: schemas.EnabledState, Health: schemas.OKHealth, HealthRollup: schemas.OKHealth}
}
