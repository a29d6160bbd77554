// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"

	"github.com/stmcginnis/gofish/schemas"
)

// fault is a Redfish error response.
type fault struct {
	status     int
	messageID  string
	message    string
	resolution string
}

func newFault(status int, messageID, message, resolution string) *fault {
	return &fault{status: status, messageID: "Base.1.18." + messageID, message: message, resolution: resolution}
}

func unauthorized() *fault {
	return newFault(http.StatusUnauthorized, "NoValidSession", "There is no valid session established with the implementation.",
		"Give the user name and password of this server, or a session that was made with them.")
}

func forbidden(name string) *fault {
	return newFault(http.StatusForbidden, "InsufficientPrivilege", "The account has no privileges on "+name+".",
		"Use the account of "+name+".")
}

func notFound(path string) *fault {
	return newFault(http.StatusNotFound, "ResourceMissingAtURI", "The resource at the URI "+path+" was not found.",
		"Place a valid resource at the URI or correct the URI.")
}

func notAllowed(method, path string) *fault {
	return newFault(http.StatusMethodNotAllowed, "OperationNotAllowed", "The method "+method+" is not allowed on "+path+".",
		"Use one of the methods in the Allow header.")
}

func malformed(reason string) *fault {
	return newFault(http.StatusBadRequest, "MalformedJSON", "The request body is not valid: "+reason+".", "Correct the request body.")
}

func missing(parameter string) *fault {
	return newFault(http.StatusBadRequest, "ActionParameterMissing", "The action requires the parameter "+parameter+".",
		"Supply the parameter "+parameter+".")
}

func notInList(property, value string) *fault {
	return newFault(http.StatusBadRequest, "PropertyValueNotInList", "The value '"+value+"' for the property "+property+
		" is not in the list of acceptable values.",
		"Choose a value from the enumeration list that the implementation can support.")
}

func badValue(property, value, reason string) *fault {
	return newFault(http.StatusBadRequest, "PropertyValueFormatError", "The value '"+value+"' for the property "+property+
		" has a wrong format: "+reason+".",
		"Correct the value.")
}

func unknownProperty(name string) *fault {
	return newFault(http.StatusBadRequest, "PropertyNotWritable", "The property "+name+" is read-only or not known.",
		"Remove the property from the request body.")
}

func inUse(reason string) *fault {
	return newFault(http.StatusConflict, "ResourceInUse", "The change cannot be made because the resource is in use: "+reason+".",
		"Remove the condition and resubmit the request.")
}

func preconditionFailed() *fault {
	return newFault(http.StatusPreconditionFailed, "PreconditionFailed",
		"The ETag supplied did not match the ETag required to change this resource.",
		"Read the resource again and resubmit the request with its ETag.")
}

func (f *fault) write(w http.ResponseWriter) {
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
	}
	body := schemas.Error{Code: f.messageID, Message: f.message, ExtendedInfos: []schemas.ErrExtendedInfo{{
		MessageID: f.messageID, Message: f.message, Severity: string(schemas.CriticalHealth), Resolution: f.resolution,
	}}}
	writeJSON(w, f.status, map[string]any{"error": encode(body)})
}
