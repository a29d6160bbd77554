// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// States of a command.
const (
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
)

// command is a command of Ironic, in the form that Ironic reads.
type command struct {
	ID     string         `json:"id"`
	Name   string         `json:"command_name"`
	Params map[string]any `json:"command_params"`
	Status string         `json:"command_status"`
	Error  *commandError  `json:"command_error"`
	Result any            `json:"command_result"`

	done chan struct{}
}

// commandError is why a command failed.
type commandError struct {
	Type    string `json:"type"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details string `json:"details"`
}

func (e *commandError) Error() string { return e.Message + ": " + e.Details }

// errBusy is the response to a command while another one is executed.
var errBusy = errors.New("Agent is busy: a command is being executed") // Ironic looks for these words.

// executor executes a command. The name includes its module: deploy.execute_deploy_step.
type executor func(ctx context.Context, name string, params map[string]any) (any, error)

// commands are executed one at a time, in the order in which they came.
type commands struct {
	execute executor
	ended   func()

	mu      sync.Mutex
	ctx     context.Context
	list    []*command
	working sync.WaitGroup
}

func newCommands(execute executor, ended func()) *commands {
	return &commands{execute: execute, ended: ended}
}

func (c *commands) start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = ctx
}

// stop waits for a command that is being executed, which ends with the context.
func (c *commands) stop() {
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.working.Wait()
}

// give starts a command and returns its present state.
func (c *commands) give(name string, params map[string]any) (*command, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		return nil, errBusy
	}
	if n := len(c.list); n > 0 && c.list[n-1].Status == running {
		return nil, errBusy
	}
	_, short, _ := strings.Cut(name, ".")
	given := &command{
		ID: strconv.Itoa(len(c.list) + 1), Name: short, Params: withoutSecrets(params), Status: running, done: make(chan struct{}),
	}
	c.list = append(c.list, given)
	c.working.Add(1)
	go c.work(c.ctx, given, name, params)
	return given, nil
}

func (c *commands) work(ctx context.Context, given *command, name string, params map[string]any) {
	defer c.working.Done()
	answer, err := c.execute(ctx, name, params)
	c.mu.Lock()
	given.Status, given.Result = succeeded, answer
	if err != nil {
		given.Status, given.Result = failed, nil
		if !errors.As(err, &given.Error) {
			given.Error = &commandError{Type: "CommandExecutionError", Code: 500, Message: "Command execution failed", Details: err.Error()}
		}
	}
	c.mu.Unlock()
	close(given.done)
	c.ended()
}

// show returns the commands as JSON.
func (c *commands) show() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	if list == nil {
		list = []*command{}
	}
	return json.Marshal(map[string]any{"commands": list})
}

// showOne returns one command as JSON, and nil if there is none of that ID.
func (c *commands) showOne(id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, candidate := range c.list {
		if candidate.ID == id {
			return json.Marshal(candidate)
		}
	}
	return nil, nil
}

// withoutSecrets removes the config drive and the node, which contains it too. They are large, and every client can list the
// commands.
func withoutSecrets(params map[string]any) map[string]any {
	shown := maps.Clone(params)
	for _, name := range []string{"node", "ports", "image_info", "configdrive"} {
		delete(shown, name)
	}
	if step, ok := shown["step"].(map[string]any); ok {
		shown["step"] = withoutArguments(step)
	}
	return shown
}

// withoutArguments returns the step's identification.
func withoutArguments(step map[string]any) map[string]any {
	known := maps.Clone(step)
	delete(known, "args")
	return known
}

func stepName(step map[string]any) string {
	return fmt.Sprintf("%v.%v", step["interface"], step["step"])
}

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
