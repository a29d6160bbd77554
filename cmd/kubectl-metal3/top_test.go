// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// asCommand is set in the environment of a child that is the command, and not its tests.
const asCommand = "KUBECTL_METAL3_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// terminal is a program on a terminal of its own.
type terminal struct {
	*vt.SafeEmulator
	keys    *os.File
	program *exec.Cmd
	// drawn has an element if something was drawn since it was read, and is closed when the program has ended.
	drawn chan struct{}
	// before are the modes before the program ran.
	before []any
	// answers are those of the terminal. The program does not get them.
	answers chan string
}

// onTerminal starts the command on a terminal of this size.
func onTerminal(t *testing.T, columns, rows int, arguments ...string) *terminal {
	t.Helper()
	program := exec.Command(os.Args[0], arguments...)
	program.Env = append(os.Environ(), asCommand+"=1", "TERM=xterm-256color")
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := pty.Setsize(keys, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{SafeEmulator: vt.NewSafeEmulator(columns, rows), keys: keys, program: program, drawn: make(chan struct{}, 1),
		answers: make(chan string, 100)}
	term.before = term.modes(t)
	program.Stdin, program.Stdout, program.Stderr = tty, tty, tty
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // for good: Close has a data race with it; a write to the terminal waits until its answer is read
		buffer := make([]byte, 1<<10)
		for {
			n, err := term.Read(buffer)
			if err != nil {
				return
			}
			term.answers <- string(buffer[:n])
		}
	}()
	go func() {
		defer close(term.drawn)
		buffer := make([]byte, 1<<16)
		for {
			n, err := keys.Read(buffer)
			if err != nil {
				return
			}
			_, _ = term.Write(buffer[:n])
			select {
			case term.drawn <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = keys.Close()
	})
	return term
}

// press types keys.
func (term *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// until waits until the screen has all texts, and returns it.
func (term *terminal) until(t *testing.T, texts ...string) string {
	t.Helper()
	ctx, done := poll.WithPatience(t.Context())
	defer done()
	for {
		screen := term.text()
		missing := ""
		for _, text := range texts {
			if without, not := strings.CutPrefix(text, "!"); strings.Contains(screen, without) == not {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
		select {
		case _, running := <-term.drawn:
			if !running {
				t.Fatalf("the program has ended, and the screen is not as wanted (%s):\n%s", missing, term.text())
			}
		case <-ctx.Done():
			t.Fatalf("the screen is not as wanted (%s):\n%s", missing, screen)
		}
	}
}

// quit presses a key that ends the program, and returns what is then on the terminal.
func (term *terminal) quit(t *testing.T, key string) string {
	t.Helper()
	term.press(t, key)
	for range term.drawn {
	}
	if err := term.program.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	return term.text()
}

// answered returns what the terminal has answered since the program began. The program has ended.
func (term *terminal) answered(t *testing.T) string {
	t.Helper()
	last := ansi.DeviceStatusReport(ansi.DECStatusReport(0))
	if _, err := term.Write([]byte(ansi.DeviceStatusReport(ansi.ANSIStatusReport(5)))); err != nil {
		t.Fatal(err)
	}
	var answers string
	for !strings.HasSuffix(answers, last) {
		answers += poll.Receive(t, "the answer that the terminal is ready", term.answers)
	}
	return strings.TrimSuffix(answers, last)
}

// text is the screen without the spaces at the ends of lines.
func (term *terminal) text() string {
	lines := strings.Split(ansi.Strip(term.Render()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// modes are how the terminal treats what is typed, and whether it shows another screen or no cursor.
func (term *terminal) modes(t *testing.T) []any {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(term.keys.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return []any{settings.Iflag, settings.Oflag, settings.Lflag, term.IsAltScreen(), term.CursorHidden()}
}

// TestTop presses keys on a terminal, and compares what is on it.
func TestTop(t *testing.T) {
	const up, down, enter, escape = "\x1b[A", "\x1b[B", "\r", "\x1b"
	term := onTerminal(t, 110, 22, "top", "--snapshot", fileOf(t, fleet()))
	term.until(t, "> … server-08", "s by state")
	golden(t, "top", "$ kubectl metal3 top\n"+term.text())
	term.press(t, down+down+up+"j")
	term.until(t, "> ✗ server-12")
	term.press(t, "s")
	term.until(t, "> ✗ server-12", "Releasing (1)", "s by type")
	golden(t, "top-state", term.text())
	term.press(t, "sss/h100 R")
	term.until(t, "filter: h100 R_", "zone global, rack r1 (4)")
	term.press(t, "2"+enter)
	term.until(t, "filter: h100 R2", "zone global, rack r2 (4)", "!server-12", "> ✓ server-07", "q quit")
	term.press(t, enter)
	term.until(t, "server metal3-system/server-07 (rack r2, zone global) is Joined", "t timeline")
	term.press(t, "t")
	term.until(t, "from the claim to the node", "!is Joined", "t explain")
	term.press(t, escape)
	term.until(t, "> ✓ server-07")
	term.press(t, escape)
	term.until(t, "!filter: h100 R2")
	term.press(t, "G")
	term.until(t, "> ✗ server-15")

	term.Resize(60, 9)
	if err := pty.Setsize(term.keys, &pty.Winsize{Cols: 60, Rows: 9}); err != nil {
		t.Fatal(err)
	}
	term.until(t, "… server-09 h100-8x Provisioning ██████░░░░ acme/acme 3/5…", "> ✗ server-15", "!server-12")
	golden(t, "top-small", term.text())
	if left := term.quit(t, "q"); left != "\n" {
		t.Errorf("it leaves this on the terminal:\n%s", left)
	}
}

// The terminal is as before, however the command ends.
func TestTopRestoresTerminal(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, before, key string
		signal              os.Signal
	}{
		"q":              {reason: "the key for it", key: "q"},
		"q in detail":    {reason: "from there too", before: "\r", key: "q"},
		"ctrl+c":         {reason: "what people press if they know no key", key: "\x03"},
		"ctrl+c, typing": {reason: "q is a letter of the filter here", before: "/q", key: "\x03"},
		"interrupted":    {reason: "by kill -INT", signal: syscall.SIGINT},
		"terminated":     {reason: "by a logout", signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			term := onTerminal(t, 80, 24, "top", "--snapshot", fileOf(t, fleet()))
			term.until(t, "q quit")
			term.press(t, tc.before)
			if tc.before != "" {
				term.until(t, "esc ")
			}
			if during := term.modes(t); cmp.Equal(term.before, during) {
				t.Errorf("the terminal is as before while it runs: %v", during)
			}
			if tc.signal != nil {
				if err := term.program.Process.Signal(tc.signal); err != nil {
					t.Fatal(err)
				}
			}
			if left := term.quit(t, tc.key); left != "\n" {
				t.Errorf("%s: it leaves this on the terminal:\n%s", tc.reason, left)
			}
			after := term.modes(t)
			if diff := cmp.Diff(term.before, after); diff != "" {
				t.Errorf("%s: modes of the terminal (-before +after):\n%s", tc.reason, diff)
			}
			if answers := term.answered(t); answers != "" {
				t.Errorf("%s: it asks the terminal something, and an answer that comes late would be typed into the shell: %q", tc.reason, answers)
			}
		})
	}
}

// key is a key as the program gets it.
func key(name string) tea.KeyPressMsg {
	codes := map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome,
		"end": tea.KeyEnd, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace}
	if code, is := codes[name]; is {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// screenOf is what is drawn after keys, without colours.
func screenOf(t *top, keys string) string {
	for name := range strings.FieldsSeq(keys) {
		t.Update(key(name))
	}
	return ansi.Strip(t.View().Content)
}

func TestTopKeys(t *testing.T) {
	gone := fleet()
	gone.Management.Hosts = slices.DeleteFunc(gone.Management.Hosts, func(host bmov1alpha1.BareMetalHost) bool {
		return host.Name == "server-10"
	})
	moved := fleet()
	moved.Management.Hosts[3].Labels["rack"] = "r9" // server-10
	hostile := fleet()
	for i := range hostile.Management.Hosts {
		hostile.Management.Hosts[i].Status.ErrorMessage = "\x1b[2J\x1b]0;title\x07line\nline\rline"
	}
	quiet := fleet()
	quiet.Tenant, quiet.Management.Machines = nil, nil
	quiet.Missing = []view.Missing{{Cluster: "management", Group: v1alpha1.Group, Resource: "machines"}}
	for name, tc := range map[string]struct {
		reason, keys string
		// then is the fleet after the keys, and lost the cluster that does not answer then.
		then      *view.Snapshot
		lost      string
		want, not []string
	}{
		"first": {reason: "a heading is not selected", keys: "up pgup home k g",
			want: []string{"> … server-08", "zone global, rack r1 (5)"}},
		"last": {reason: "there is nothing below", keys: "end down j pgdown",
			want: []string{"> ✗ server-15"}, not: []string{"server-08 h100-8x"}},
		"over a heading": {reason: "down and up again", keys: "down down down down down up down", want: []string{"> ✓ server-07"}},
		"page":           {reason: "the selected one is on the screen", keys: "pgdown", want: []string{"> ✓ server-07"}},
		"all orders":     {reason: "after the last comes the first", keys: "s s s s", want: []string{"zone global, rack r1 (5)"}},
		"by type":        {reason: "one matches none", keys: "s s end", want: []string{"> ✗ server-15", "no type (1)"}},
		"by tenant":      {reason: "most have none", keys: "s s s", want: []string{"acme/acme (4)"}},
		"no hits":        {reason: "there is nothing to open", keys: "/ z z z enter enter down t", want: []string{"filter: zzz", "q quit"}},
		"no filter": {reason: "the letters are removed", keys: "/ % % backspace backspace backspace enter",
			want: []string{"> … server-08"}},
		"filter dropped": {reason: "esc while it is typed", keys: "/ % % esc", want: []string{"> … server-08"}, not: []string{"filter:"}},
		"filter of why": {reason: "what is seen is found", keys: "/ p a s s w o r d",
			want: []string{"> ✗ server-13"}, not: []string{"server-08 h"}},
		"gone": {reason: "the next one is selected", keys: "down", then: gone,
			want: []string{"9 servers", "> ✗ server-12"}, not: []string{"server-10 "}},
		"moved": {reason: "the selected server stays selected", keys: "down", then: moved,
			want: []string{"> … server-10", "rack r9 (1)"}},
		"open, gone": {reason: "it says so", keys: "down enter", then: gone,
			want: []string{`host "metal3-system/server-10" was not found`}},
		"timeline, gone": {reason: "it says so", keys: "down t", then: gone, want: []string{`host "metal3-system/server-10" was not found`}},
		"and back":       {reason: "enter closes what enter opened", keys: "enter enter", want: []string{"> … server-08"}},
		"scroll": {reason: "there is nothing below the end", keys: "down down down enter end down down up home",
			want: []string{"server metal3-system/server-14"}},
		"hostile": {reason: "what a BMC says does not draw on the screen", keys: "/ s e r v e r - 1 3", then: hostile,
			want: []string{"> ✗ server-13", "line line line"}, not: []string{"title"}},
		"lost": {reason: "old words are not taken for new ones", then: fleet(), lost: "reading machines in the management cluster, EOF",
			want: []string{"this is old: reading machines in the management cluster, EOF", "> … server-08"}},
		"not read": {reason: "what is not shown is said", then: quiet, want: []string{"warning: you may not list machines"},
			not: []string{"on the way", "pods without"}},
	} {
		t.Run(name, func(t *testing.T) {
			screen := newTop(fleetNow{Fleet: view.New(fleet())}, nil)
			screen.Update(tea.WindowSizeMsg{Width: 140, Height: 13})
			got := screenOf(screen, tc.keys)
			if tc.then != nil {
				screen.Update(fleetNow{view.New(tc.then), tc.lost})
				got = screenOf(screen, "")
			}
			for _, text := range tc.want {
				if !strings.Contains(got, text) {
					t.Errorf("%s: the screen does not have %q:\n%s", tc.reason, text, got)
				}
			}
			for _, text := range tc.not {
				if strings.Contains(got, text) {
					t.Errorf("%s: the screen has %q:\n%s", tc.reason, text, got)
				}
			}
			if lines := strings.Count(got, "\n") + 1; lines != 13 {
				t.Errorf("the screen has %d lines of 13:\n%s", lines, got)
			}
		})
	}
}

// Screens of any size are filled, and no line is longer.
func TestTopSizes(t *testing.T) {
	for _, keys := range []string{"", "enter", "t", "/ x"} {
		for height := 1; height < 40; height++ {
			for width := 1; width < 150; width += 7 {
				screen := newTop(fleetNow{Fleet: view.New(fleet())}, nil)
				screen.Update(tea.WindowSizeMsg{Width: width, Height: height})
				lines := strings.Split(screenOf(screen, keys), "\n")
				if len(lines) != height {
					t.Fatalf("%dx%d has %d lines:\n%s", width, height, len(lines), strings.Join(lines, "\n"))
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width {
						t.Fatalf("%dx%d has a line of %d: %s", width, height, ansi.StringWidth(line), line)
					}
				}
			}
		}
	}
}

// followable is for a cluster that is followed.
var followable = interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
	options ...client.ListOption) (watch.Interface, error) {
	if asked := (&client.ListOptions{}).ApplyOptions(options); asked.Raw.SendInitialEvents != nil { // the fake cannot
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	}
	return c.Watch(ctx, list, options...)
}}

// What changes while a fleet is made is in the next one, and durations go on without a change.
func TestFollow(t *testing.T) { synctest.Test(t, testFollow) }

func testFollow(t *testing.T) {
	management := cluster(followable)
	ctx, stop := context.WithCancel(t.Context())
	live, err := view.Follow(ctx, management, nil, view.Scope{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	now, next := follow(ctx, live)
	if count := len(now.Servers()); count != 10 {
		t.Errorf("there are %d servers, want 10", count)
	}
	host := env.AvailableHost("metal3-system", "server-99", nil)
	if err := management.Create(ctx, host); err != nil {
		t.Fatal(err)
	}
	changed, is := next().(fleetNow)
	if count := len(changed.Servers()); !is || count != 11 {
		t.Errorf("there are %d servers after the change, want 11", count)
	}
	later, is := next().(fleetNow)
	if !is || !later.Now().After(changed.Now()) {
		t.Errorf("without a change it is %s, and was %s", later.Now(), changed.Now())
	}
	stop()
	if message := next(); message != nil {
		t.Errorf("after the end there is %v", message)
	}
}

// What changes in any of several tenant clusters is shown.
func TestFollowTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tenants []client.WithWatch
		pod := fleet().Tenant.Pods[0]
		for range 2 {
			tenants = append(tenants, fake.NewClientBuilder().WithScheme(view.Scheme()).WithInterceptorFuncs(followable).
				WithObjects(pod.DeepCopy()).Build())
		}
		ctx, stop := context.WithCancel(t.Context())
		live, err := view.Follow(ctx, cluster(followable), tenants, view.Scope{}, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		now, next := follow(ctx, live)
		if count := len(now.Unscheduled()); count != 2 {
			t.Errorf("%d pods have no node, want one in each cluster", count)
		}
		more := fleet().Tenant.Pods[0]
		more.Name = "more"
		if err := tenants[1].Create(ctx, &more); err != nil {
			t.Fatal(err)
		}
		if changed, is := next().(fleetNow); !is || len(changed.Unscheduled()) != 3 || len(changed.Missing()) != 0 {
			t.Errorf("after the change it is %+v", changed)
		}
		stop()
		next()
	})
}

// fleetOf is a snapshot of so many servers.
func fleetOf(count int) *view.Snapshot {
	snapshot := fleet()
	free := snapshot.Management.Hosts[9]
	snapshot.Management.Hosts = nil
	for i := range count {
		host := free.DeepCopy()
		host.Name, host.UID = fmt.Sprintf("server-%05d", i), types.UID(fmt.Sprint(i))
		snapshot.Management.Hosts = append(snapshot.Management.Hosts, *host)
	}
	return snapshot
}

// Only what is visible is drawn: a screen costs the same for a hundred servers and for ten thousand.
func TestTopDrawsWhatIsVisible(t *testing.T) {
	allocations := func(count int) float64 {
		screen := newTop(fleetNow{Fleet: view.New(fleetOf(count))}, nil)
		screen.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
		return testing.AllocsPerRun(10, func() { screenOf(screen, "pgdown") })
	}
	few, many := allocations(100), allocations(10_000)
	if many > 1.1*few {
		t.Errorf("a screen takes %v allocations with 10000 servers, and %v with 100", many, few)
	}
}

// BenchmarkTop is a key pressed on the screen of ten thousand servers.
func BenchmarkTop(b *testing.B) {
	screen := newTop(fleetNow{Fleet: view.New(fleetOf(10_000))}, nil)
	screen.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	for name, keys := range map[string]string{"down": "down", "filter": "/ 7 esc", "sort": "s"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				screenOf(screen, keys)
			}
		})
	}
}
