// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

type fixture struct {
	*Supervisor
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
	exits chan Exit
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(time.Unix(0, 0)), exits: make(chan Exit, 100)}
	var err error
	f.Supervisor, err = NewSupervisor(Options{Dir: f.dir, Clock: f.clock, OnExit: func(exit Exit) { f.exits <- exit }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func spec(name, role string, env ...string) Spec {
	return Spec{Name: name, Path: os.Args[0], Env: append([]string{roleKey + "=" + role, nameKey + "=" + name}, env...)}
}

func (f *fixture) start(spec Spec) {
	f.t.Helper()
	if err := f.Start(spec); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) await(what string, check func() bool) {
	f.t.Helper()
	poll.Eventually(f.t, what, func(context.Context) error {
		if check() {
			return nil
		}
		return fmt.Errorf("it has not come; the processes are %+v", f.List())
	})
}

func (f *fixture) log(name string) string {
	content, _ := os.ReadFile(filepath.Join(f.dir, "log", name+".log"))
	return string(content)
}

// awaitReady waits until the process has printed count times that it is ready.
func (f *fixture) awaitReady(name string, count int) {
	f.t.Helper()
	f.await(name+" is ready", func() bool { return strings.Count(f.log(name), "ready") == count })
}

func (f *fixture) nextExit() Exit {
	f.t.Helper()
	return poll.Receive(f.t, "the report of an exit", f.exits)
}

// elapse advances the clock once a goroutine waits for it.
func (f *fixture) elapse(d time.Duration) {
	f.t.Helper()
	f.await("a goroutine waits for the clock", f.clock.HasWaiters)
	f.clock.Step(d)
}

func (f *fixture) info(name string) Info {
	f.t.Helper()
	for _, info := range f.List() {
		if info.Name == name {
			return info
		}
	}
	f.t.Fatalf("no process %s in the list", name)
	return Info{}
}

func TestStop(t *testing.T) {
	f := newFixture(t)
	f.start(spec("server", roleObedient))
	f.awaitReady("server", 1)
	pidFile := filepath.Join(f.dir, "run", "server.pid")
	content, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintln(f.info("server").PID); string(content) != want {
		t.Errorf("pid file holds %q, want %q", content, want)
	}
	if err := f.Stop("server"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("ready\nbye\n", f.log("server")); diff != "" {
		t.Errorf("the process was not given the time to end (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(pidFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pid file is still there: %v", err)
	}
	want := Info{Name: "server", State: Stopped, LogFile: filepath.Join(f.dir, "log", "server.log")}
	if diff := cmp.Diff(want, f.info("server")); diff != "" {
		t.Errorf("after the stop (-want +got):\n%s", diff)
	}
	if err := f.Stop("server"); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
	if len(f.exits) > 0 {
		t.Errorf("a requested end is reported as a death: %v", <-f.exits)
	}

	if err := f.StartAgain("server"); err != nil {
		t.Fatal(err)
	}
	f.awaitReady("server", 2)
	if state := f.info("server").State; state != Running {
		t.Errorf("state after another start is %s", state)
	}
}

func TestStopKillsAfterGracePeriod(t *testing.T) {
	f := newFixture(t)
	stubborn := spec("server", roleStubborn)
	stubborn.Grace = time.Hour
	f.start(stubborn)
	f.awaitReady("server", 1)
	stopped := make(chan error, 1)
	go func() { stopped <- f.Stop("server") }()
	f.elapse(time.Hour)
	if err := poll.Receive(t, "the end of a process that ignores SIGTERM, after its grace period", stopped); err != nil {
		t.Fatal(err)
	}
}

func TestRestart(t *testing.T) {
	f := newFixture(t)
	restarting := spec("server", roleObedient)
	restarting.Restart = true
	f.start(restarting)
	f.awaitReady("server", 1)
	first := f.info("server").PID

	if err := f.Kill("server"); err != nil {
		t.Fatal(err)
	}
	want := Exit{Name: "server", Reason: "signal: killed", Delay: firstDelay, LogFile: filepath.Join(f.dir, "log", "server.log")}
	if diff := cmp.Diff(want, f.nextExit()); diff != "" {
		t.Errorf("the death is reported (-want +got):\n%s", diff)
	}
	if state := f.info("server").State; state != Waiting {
		t.Errorf("state before the restart is %s", state)
	}
	if err := f.Kill("server"); err == nil {
		t.Error("killing what does not run is no error")
	}
	f.elapse(firstDelay)
	f.awaitReady("server", 2)
	again := f.info("server")
	if again.PID == first || again.Restarts != 1 {
		t.Errorf("pid %d after %d, %d restarts; want another pid and 1 restart", again.PID, first, again.Restarts)
	}
}

func TestRestartGivesUp(t *testing.T) {
	f := newFixture(t)
	failing := spec("server", roleFailing)
	failing.Restart = true
	f.start(failing)
	var delays []time.Duration
	exit := f.nextExit()
	for ; !exit.Final; exit = f.nextExit() {
		delays = append(delays, exit.Delay)
		f.elapse(exit.Delay)
	}
	want := []time.Duration{firstDelay, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if exit.Reason != "exit status 3" {
		t.Errorf("reason is %s", exit.Reason)
	}
	if state := f.info("server").State; state != Failed {
		t.Errorf("state is %s", state)
	}
}

func TestExitWithoutRestart(t *testing.T) {
	f := newFixture(t)
	f.start(spec("server", roleFailing))
	exit := f.nextExit()
	if !exit.Final || exit.Reason != "exit status 3" {
		t.Errorf("exit is %+v", exit)
	}
	lines, err := LastLines(exit.LogFile, 5)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"no such luck"}, lines); diff != "" {
		t.Errorf("last words (-want +got):\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("KUBECONFIG", "/the/users/own")
	f := newFixture(t)
	f.start(spec("server", roleEnvironed, "GIVEN=value"))
	f.nextExit()
	environment := f.log("server")
	if strings.Contains(environment, "KUBECONFIG") {
		t.Error("the process sees the user's KUBECONFIG")
	}
	for _, want := range []string{"GIVEN=value\n", "PATH=" + os.Getenv("PATH") + "\n"} {
		if !strings.Contains(environment, want) {
			t.Errorf("the process does not see %s", want)
		}
	}
}

func TestCredential(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	f := newFixture(t)
	f.start(Spec{Name: "other", Path: "/usr/bin/id", Args: []string{"-u"}, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	f.nextExit()
	if got := f.log("other"); got != "65534\n" {
		t.Errorf("it runs as user %q", got)
	}
}

func TestCloseStopsHigherRanksFirst(t *testing.T) {
	f := newFixture(t)
	order := filepath.Join(f.dir, "order")
	for _, name := range []string{"a2", "b1", "c2", "d0"} {
		process := spec(name, roleObedient, orderKey+"="+order)
		process.Rank, _ = strconv.Atoi(name[1:])
		f.start(process)
		f.awaitReady(name, 1)
	}
	f.Close()
	content, err := os.ReadFile(order)
	if err != nil {
		t.Fatal(err)
	}
	var ranks []string
	for name := range strings.Lines(string(content)) {
		ranks = append(ranks, strings.TrimSpace(name)[1:])
	}
	if diff := cmp.Diff([]string{"2", "2", "1", "0"}, ranks); diff != "" {
		t.Errorf("ranks in the order of their end (-want +got):\n%s", diff)
	}
	if err := f.Start(spec("late", roleObedient)); err == nil {
		t.Error("something can be started after Close")
	}
}

func TestErrors(t *testing.T) {
	f := newFixture(t)
	f.start(spec("server", roleObedient))
	cases := map[string]struct {
		reason string
		do     func() error
		want   string
	}{
		"Twice": {reason: "Two of a name would share log and pid file.",
			do: func() error { return f.Start(spec("server", roleObedient)) }, want: "running already"},
		"Unknown": {reason: "A wrong name lists the right ones.", do: func() error { return f.Stop("sever") }, want: "known are [server]"},
		"MissingProgram": {reason: "The error names process and program.", do: func() error { return f.Start(Spec{Name: "x", Path: "/no/such"}) },
			want: "starting x, fork/exec /no/such"},
		"StartRunning": {reason: "What runs cannot be started again.", do: func() error { return f.StartAgain("server") },
			want: "running already"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestSupervisorExitKillsProcesses(t *testing.T) {
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), roleKey+"="+roleSupervisor, dirKey+"="+t.TempDir())
	output, err := supervisor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	if !alive(pid) {
		t.Fatal("the process does not run")
	}
	// Both processes are already dead if this fails.
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait()
	poll.Eventually(t, "the process ends with its supervisor", func(context.Context) error {
		if alive(pid) {
			return fmt.Errorf("process %d runs", pid)
		}
		return nil
	})
}

// alive returns whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func TestLastLines(t *testing.T) {
	cases := map[string]struct {
		reason  string
		content string
		want    []string
	}{
		"Empty":   {reason: "An empty log has no last words.", content: ""},
		"Few":     {reason: "All lines if there are few.", content: "a\nb\n", want: []string{"a", "b"}},
		"Many":    {reason: "The last of many.", content: "a\nb\nc\nd\n", want: []string{"b", "c", "d"}},
		"Unended": {reason: "A process may die in the middle of a line.", content: "a\nb", want: []string{"a", "b"}},
		"Very long": {reason: "A huge log is not read as a whole.", content: strings.Repeat("x", 2*tailSize) + "\nlast\n",
			want: []string{strings.Repeat("x", tailSize-len("\nlast\n")), "last"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := LastLines(path, 3)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
