// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

// Names of the programs that are measured. A tenant's have its name before.
const (
	managementAPIServer = "management-kube-apiserver"
	managementEtcd      = "management-etcd"
	webhookProcess      = "webhook"
	managerProcess      = "metal3-manager"
	providerProcess     = "provider"
	// testProcess is that of the test: Metal3, and the tenants without processes.
	testProcess = "test"
)

// A usage is what a program has taken until a time.
type usage struct {
	pid int
	cpu time.Duration
	// received and sent are all bytes that it has read and written: of files, too, but of these programs only etcd has any that are large.
	received, sent uint64
	// anonymous is the resident memory that is its own, in bytes. The rest of resident are pages of its binary and of files, which the
	// kernel takes back, and shares.
	anonymous, resident uint64
}

// readUsage reads what the kernel counts of a process.
func readUsage(pid int) (usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("reading process %d, %w", pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("reading process %d, %w", pid, err)
	}
	transferred, err := process.IO()
	if err != nil {
		return usage{}, fmt.Errorf("reading process %d, %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("reading process %d, %w", pid, err)
	}
	return usage{
		pid: pid, cpu: time.Duration(stat.CPUTime() * float64(time.Second)), received: transferred.RChar, sent: transferred.WChar,
		anonymous: status.RssAnon, resident: status.VmRSS,
	}, nil
}

// A sample is what all has taken until a time.
type sample struct {
	time     time.Time
	programs map[string]usage
	// nodeTypes are the bytes of NodeTypes that the API server has sent to watchers.
	nodeTypes float64
	// database is the size of etcd's file in bytes, with what compaction has freed.
	database float64
	claims   int
	// beats are the statuses that Metal3 has written while nothing had changed.
	beats int64
}

// sample reads what the programs have taken. Those that do not run are left out.
func (f *fleet) sample(t testing.TB) *sample {
	t.Helper()
	now := &sample{time: time.Now(), programs: map[string]usage{}, claims: f.claims.count(), beats: f.beats.Load()}
	for _, info := range f.processes.List() {
		if info.PID == 0 {
			continue
		}
		if taken, err := readUsage(info.PID); err == nil {
			now.programs[info.Name] = taken
		}
	}
	if taken, err := readUsage(os.Getpid()); err == nil {
		now.programs[testProcess] = taken
	}
	metrics := f.apiServerMetrics(t)
	for name, value := range metrics {
		switch {
		case strings.HasPrefix(name, "apiserver_watch_events_sizes_sum{") && strings.Contains(name, `resource="nodetypes"`):
			now.nodeTypes += value
		case strings.HasPrefix(name, "apiserver_storage_size_bytes{"):
			now.database = value
		}
	}
	return now
}

// apiServerMetrics are those of the management cluster's API server.
func (f *fleet) apiServerMetrics(t testing.TB) management.Metrics {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := f.raw.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		t.Fatalf("reading the metrics of the API server, %v", err)
	}
	metrics, err := management.ParseMetrics(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("reading the metrics of the API server, %v", err)
	}
	return metrics
}

// since sums up what the programs whose names end so have taken since an earlier sample, and what memory they have. A program that was
// started again has taken all that it has.
func (s *sample) since(before *sample, suffix string) (sum usage, count int) {
	for name, taken := range s.programs {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		earlier := before.programs[name]
		if earlier.pid != taken.pid {
			earlier = usage{}
		}
		sum.cpu, sum.received, sum.sent = sum.cpu+taken.cpu-earlier.cpu, sum.received+taken.received-earlier.received,
			sum.sent+taken.sent-earlier.sent
		sum.anonymous, sum.resident = sum.anonymous+taken.anonymous, sum.resident+taken.resident
		count++
	}
	return sum, count
}

// A phase is what was taken from one sample to the next.
type phase struct {
	name          string
	before, after *sample
	// took are the times from the creation of a Machine to its claim, sorted.
	took []time.Duration
	note string
}

func (p *phase) seconds() float64 { return p.after.time.Sub(p.before.time).Seconds() }

// taken is what the programs whose names end so have taken, and how many there are.
func (p *phase) taken(suffix string) (usage, int) { return p.after.since(p.before, suffix) }

// cores is how many cores a processor time is, in thousandths.
func (p *phase) cores(taken usage) float64 { return 1000 * taken.cpu.Seconds() / p.seconds() }

func (p *phase) nodeTypes() float64 { return p.after.nodeTypes - p.before.nodeTypes }

func (p *phase) claims() int { return p.after.claims - p.before.claims }

// percentile is the time within which that part of the claims were made.
func percentile(took []time.Duration, part float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	return took[min(len(took)-1, int(part*float64(len(took))))]
}

const mib = 1 << 20

// table prints the phases of a run.
func table(phases []*phase) string {
	var text strings.Builder
	text.WriteString("| phase | s | claims | p50 ms | p99 ms | " +
		"managers mcores | MiB | webhook mcores | MiB | API server mcores | MiB | sent MiB/s | " +
		"etcd mcores | database MiB | NodeTypes MiB/s | a provider mcores | anonymous MiB | resident MiB | test mcores | note |\n|" +
		strings.Repeat("--|", 20) + "\n")
	for _, p := range phases {
		manager, _ := p.taken(managerProcess)
		webhook, _ := p.taken(webhookProcess)
		server, _ := p.taken(managementAPIServer)
		etcd, _ := p.taken(managementEtcd)
		provider, providers := p.taken("-" + providerProcess)
		itself, _ := p.taken(testProcess)
		each := uint64(max(1, providers))
		fmt.Fprintf(&text, "| %s | %.0f | %d | %d | %d | %.0f | %d | %.0f | %d | %.0f | %d | %.2f ",
			p.name, p.seconds(), p.claims(), percentile(p.took, 0.5).Milliseconds(), percentile(p.took, 0.99).Milliseconds(),
			p.cores(manager), manager.anonymous/mib, p.cores(webhook), webhook.anonymous/mib, p.cores(server), server.anonymous/mib,
			float64(server.sent)/mib/p.seconds())
		fmt.Fprintf(&text, "| %.0f | %.0f | %.2f | %.1f | %d | %d | %.0f | %s |\n",
			p.cores(etcd), p.after.database/mib, p.nodeTypes()/mib/p.seconds(),
			p.cores(provider)/float64(each), provider.anonymous/mib/each, provider.resident/mib/each, p.cores(itself), p.note)
	}
	return text.String()
}

// perClaim is what a claim of a phase took of the managers' processor time, and of the bytes that the API server sent, beyond what Metal3's
// statuses take by themselves.
func (p *phase) perClaim(idle *phase) (cpu time.Duration, sent float64) {
	beats := float64(p.after.beats-p.before.beats) / float64(max(1, idle.after.beats-idle.before.beats))
	beyond := func(suffix string) (time.Duration, float64) {
		taken, _ := p.taken(suffix)
		rest, _ := idle.taken(suffix)
		return taken.cpu - time.Duration(beats*float64(rest.cpu)), float64(taken.sent) - beats*float64(rest.sent)
	}
	cpu, _ = beyond(managerProcess)
	_, sent = beyond(managementAPIServer)
	return cpu / time.Duration(max(1, p.claims())), sent / float64(max(1, p.claims()))
}
