// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// bodyLimit is more than a config drive can have: Ironic's limit for those is 64 MiB.
const bodyLimit = 128 << 20

// handler is the agent's own API.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": version})
	})
	mux.HandleFunc("GET /v1/commands", a.listCommands)
	mux.HandleFunc("GET /v1/commands/{$}", a.listCommands)
	mux.HandleFunc("GET /v1/commands/{id}", func(w http.ResponseWriter, r *http.Request) {
		data, err := a.commands.showOne(r.PathValue("id"))
		if err == nil && data == nil {
			refuse(w, http.StatusNotFound, "no command has the ID "+r.PathValue("id"))
			return
		}
		write(w, data, err)
	})
	mux.HandleFunc("POST /v1/commands", a.takeCommand)
	mux.HandleFunc("POST /v1/commands/{$}", a.takeCommand)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.options.Server.Faults.Has(faults.AgentSilent) {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	})
}

func (a *Agent) listCommands(w http.ResponseWriter, _ *http.Request) {
	data, err := a.commands.show()
	write(w, data, err)
}

func (a *Agent) takeCommand(w http.ResponseWriter, r *http.Request) {
	if token := a.secret(); token == "" || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("agent_token")), []byte(token)) != 1 {
		refuse(w, http.StatusUnauthorized, "Token invalid: the agent_token is not the one from Ironic")
		return
	}
	var given struct {
		Name   string         `json:"name"`
		Params map[string]any `json:"params"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit)).Decode(&given); err != nil {
		refuse(w, http.StatusBadRequest, "the command is not JSON: "+err.Error())
		return
	}
	asynchronous, is := known[given.Name]
	if !is {
		refuse(w, http.StatusNotFound, "Unknown command: "+given.Name)
		return
	}
	a.options.Logger.Info("Agent was given a command", "command", given.Name)
	command, err := a.commands.give(given.Name, given.Params)
	if errors.Is(err, errBusy) {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	if r.URL.Query().Get("wait") == "true" || !asynchronous {
		select {
		case <-command.done:
		case <-r.Context().Done():
			return
		}
	}
	data, err := a.commands.showOne(command.ID)
	write(w, data, err)
}

func write(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// This fails if Ironic has closed the connection. It will retry.
	_, _ = w.Write(data)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// refuse returns an error like the real agent: Ironic reads the field faultstring.
func refuse(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, map[string]any{"faultstring": reason, "code": status, "type": http.StatusText(status)})
}
