// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
)

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// refusedWith checks the status of an error that gofish has read.
func refusedWith(t *testing.T, reason string, err error, status int) {
	t.Helper()
	refusal := &schemas.Error{}
	if !errors.As(err, &refusal) || refusal.HTTPReturnedStatusCode != status {
		t.Errorf("%s: got %v, want status %d", reason, err, status)
	}
}

// resetSystem posts to the target that the system names. ComputerSystem.Reset of gofish v0.21.0 takes that of another action.
func resetSystem(system *schemas.ComputerSystem, reset schemas.ResetType) error {
	var described struct {
		Actions map[string]struct {
			Target string `json:"target"`
		}
	}
	if err := json.Unmarshal(system.RawData, &described); err != nil {
		return err
	}
	response, err := system.GetClient().Post(described.Actions["#ComputerSystem.Reset"].Target, map[string]any{"ResetType": reset})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestPower(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1", "s2")
	system := r.system(t, "s1")
	if system.PowerState != schemas.OffPowerState {
		t.Errorf("power is %s at first, want Off", system.PowerState)
	}
	types, err := system.GetSupportedResetTypes()
	if err != nil || len(types) != len(ResetTypes()) {
		t.Errorf("supported resets are %v, %v", types, err)
	}
	for _, reset := range ResetTypes() {
		if err := resetSystem(system, reset); err != nil {
			t.Errorf("%s: %v", reset, err)
		}
	}
	if diff := cmp.Diff(ResetTypes(), r.power["s1"].resets); diff != "" {
		t.Errorf("resets that reached the server (-want +got):\n%s", diff)
	}
	if len(r.power["s2"].resets) != 0 {
		t.Errorf("another server got resets: %v", r.power["s2"].resets)
	}
	if state := r.system(t, "s1").PowerState; state != schemas.OnPowerState {
		t.Errorf("power is %s after PowerCycle, want On", state)
	}
}

func TestBootOverride(t *testing.T) {
	cases := map[string]struct {
		reason  string
		boot    schemas.Boot
		refused bool
		// boots are the targets of the boots that follow.
		boots []schemas.BootSource
	}{
		"Once": {
			reason: "an override for one boot is cleared by the boot",
			boot: schemas.Boot{BootSourceOverrideTarget: schemas.CdBootSource, BootSourceOverrideEnabled: schemas.OnceBootSourceOverrideEnabled,
				BootSourceOverrideMode: schemas.UEFIBootSourceOverrideMode},
			boots: []schemas.BootSource{schemas.CdBootSource, schemas.NoneBootSource},
		},
		"Continuous": {
			reason: "a continuous override stays",
			boot: schemas.Boot{BootSourceOverrideTarget: schemas.HddBootSource,
				BootSourceOverrideEnabled: schemas.ContinuousBootSourceOverrideEnabled},
			boots: []schemas.BootSource{schemas.HddBootSource, schemas.HddBootSource},
		},
		"Disabled": {
			reason: "a target without an override has no effect",
			boot: schemas.Boot{BootSourceOverrideTarget: schemas.PxeBootSource,
				BootSourceOverrideEnabled: schemas.DisabledBootSourceOverrideEnabled},
			boots: []schemas.BootSource{schemas.NoneBootSource},
		},
		"None": {
			reason: "Redfish: the target None disables the override",
			boot:   schemas.Boot{BootSourceOverrideTarget: schemas.NoneBootSource},
			boots:  []schemas.BootSource{schemas.NoneBootSource},
		},
		"UnknownTarget": {
			reason: "a target that was not offered is refused", refused: true,
			boot: schemas.Boot{BootSourceOverrideTarget: schemas.SDCardBootSource}, boots: []schemas.BootSource{schemas.NoneBootSource},
		},
		"Legacy": {
			reason: "these servers support UEFI only", refused: true,
			boot: schemas.Boot{BootSourceOverrideMode: schemas.LegacyBootSourceOverrideMode}, boots: []schemas.BootSource{schemas.NoneBootSource},
		},
		"UnknownFrequency": {
			reason: "nothing is changed if one of the values is wrong", refused: true,
			boot:  schemas.Boot{BootSourceOverrideTarget: schemas.PxeBootSource, BootSourceOverrideEnabled: "Twice"},
			boots: []schemas.BootSource{schemas.NoneBootSource},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, clock.RealClock{}, "s1")
			err := r.system(t, "s1").SetBoot(&tc.boot)
			if tc.refused {
				refusedWith(t, tc.reason, err, http.StatusBadRequest)
			} else if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var boots []schemas.BootSource
			for range tc.boots {
				boots = append(boots, r.service.systems[0].TakeBoot().Target)
			}
			if diff := cmp.Diff(tc.boots, boots); diff != "" {
				t.Errorf("%s: boots (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestVirtualMedia(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1")
	slots := func() map[string]*schemas.VirtualMedia {
		managers, err := r.system(t, "s1").ManagedBy()
		if err != nil || len(managers) != 1 {
			t.Fatalf("managers: %v, %v", managers, err)
		}
		media, err := managers[0].VirtualMedia()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]*schemas.VirtualMedia{}
		for _, m := range media {
			found[m.ID] = m
		}
		return found
	}
	const image = "http://127.0.0.1:6180/deploy.iso"
	cd := slots()[CdSlot]
	if cd == nil || *cd.Inserted || cd.Image != "" || !cd.SupportsMediaInsert || cd.ConnectedVia != schemas.NotConnectedConnectedVia {
		t.Fatalf("the CD at first: %+v", cd)
	}
	if _, err := cd.InsertMedia(&schemas.VirtualMediaInsertMediaParameters{Image: image}); err != nil {
		t.Fatal(err)
	}
	cd = slots()[CdSlot]
	if !*cd.Inserted || cd.Image != image || cd.ImageName != "deploy.iso" || cd.ConnectedVia != schemas.URIConnectedVia {
		t.Errorf("the CD with an image: %+v", cd)
	}
	if got := r.service.systems[0].TakeBoot().Media; cmp.Diff(map[string]string{CdSlot: image}, got) != "" {
		t.Errorf("the server finds %v", got)
	}
	_, err := cd.InsertMedia(&schemas.VirtualMediaInsertMediaParameters{Image: image})
	refusedWith(t, "a slot takes one image", err, http.StatusConflict)
	_, err = slots()[UsbSlot].InsertMedia(&schemas.VirtualMediaInsertMediaParameters{Image: "nfs://host/path"})
	refusedWith(t, "images come by HTTP", err, http.StatusBadRequest)
	for range 2 { // ejecting from an empty slot is no error, because Ironic does it
		if _, err := cd.EjectMedia(); err != nil {
			t.Fatal(err)
		}
	}
	if cd = slots()[CdSlot]; *cd.Inserted {
		t.Errorf("the CD is still there: %+v", cd)
	}
}

func TestRefusals(t *testing.T) {
	const system = "/redfish/v1/Systems/s1"
	cases := map[string]struct {
		method, path, body string
		header             http.Header
		status             int
		messageID          string
	}{
		"UnknownPath": {http.MethodGet, "/redfish/v1/Fabrics", "", nil, 404, "ResourceMissingAtURI"},
		"UnknownPart": {http.MethodGet, system + "/Processors/CPU9", "", nil, 404, "ResourceMissingAtURI"},
		"UnknownSlot": {http.MethodPost, "/redfish/v1/Managers/s1/VirtualMedia/Tape/Actions/VirtualMedia.InsertMedia", "{}", nil, 404,
			"ResourceMissingAtURI"},
		"UnknownFunction": {http.MethodGet, "/redfish/v1/Chassis/s1/PCIeDevices/GPU9/PCIeFunctions", "", nil, 404, "ResourceMissingAtURI"},
		"Method":          {http.MethodDelete, system, "", nil, 405, "OperationNotAllowed"},
		"NotJSON":         {http.MethodPatch, system, "{", nil, 400, "MalformedJSON"},
		"ReadOnly":        {http.MethodPatch, system, `{"PowerState": "On"}`, nil, 400, "PropertyNotWritable"},
		"ReadOnlyBoot":    {http.MethodPatch, system, `{"Boot": {"BootNext": "1"}}`, nil, 400, "PropertyNotWritable"},
		"Type":            {http.MethodPatch, system, `{"Boot": {"BootSourceOverrideTarget": 1}}`, nil, 400, "PropertyValueNotInList"},
		"NothingToChange": {http.MethodPatch, system, `{}`, nil, 400, "ActionParameterMissing"},
		"NoResetType":     {http.MethodPost, system + "/Actions/ComputerSystem.Reset", "", nil, 400, "ActionParameterMissing"},
		"UnknownResetType": {http.MethodPost, system + "/Actions/ComputerSystem.Reset", `{"ResetType": "Nmi"}`, nil, 400,
			"PropertyValueNotInList"},
		"NoImage": {http.MethodPost, "/redfish/v1/Managers/s1/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", "{}", nil, 400,
			"ActionParameterMissing"},
		"OldETag": {
			http.MethodPatch, system, `{"Boot": {"BootSourceOverrideTarget": "Pxe"}}`, http.Header{"If-Match": {`"0123"`}}, 412,
			"PreconditionFailed",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			response := newRack(t, clock.RealClock{}, "s1").call(t, tc.method, tc.path, "s1", tc.body, tc.header)
			var body struct {
				Error struct {
					Code     string `json:"code"`
					Message  string `json:"message"`
					Extended []struct {
						MessageID  string `json:"MessageId"`
						Message    string
						Severity   string
						Resolution string
					} `json:"@Message.ExtendedInfo"`
				} `json:"error"`
			}
			if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != tc.status || !strings.HasSuffix(body.Error.Code, "."+tc.messageID) {
				t.Errorf("got %d %+v, want %d %s", response.StatusCode, body, tc.status, tc.messageID)
			}
			if e := body.Error.Extended; len(e) != 1 || e[0].MessageID != body.Error.Code || e[0].Message == "" || e[0].Severity == "" ||
				e[0].Resolution == "" {
				t.Errorf("extended info is %+v", e)
			}
			if tc.status == http.StatusMethodNotAllowed && response.Header.Get("Allow") != "GET, PATCH" {
				t.Errorf("Allow is %q", response.Header.Get("Allow"))
			}
		})
	}
}

func TestETagConditionalUpdate(t *testing.T) {
	r := newRack(t, clock.RealClock{}, "s1")
	tag := r.call(t, http.MethodGet, "/redfish/v1/Systems/s1", "s1", "", nil).Header.Get("ETag")
	r.power["s1"].Reset(schemas.OnResetType) // power is not a setting, and conflicts with none
	header := http.Header{"If-Match": {tag}}
	for n, want := range []int{http.StatusNoContent, http.StatusPreconditionFailed} {
		response := r.call(t, http.MethodPatch, "/redfish/v1/Systems/s1", "s1", `{"Boot": {"BootSourceOverrideTarget": "Pxe"}}`, header)
		if response.StatusCode != want {
			t.Errorf("change %d with ETag %s is status %d, want %d", n+1, tag, response.StatusCode, want)
		}
	}
}
