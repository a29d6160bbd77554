// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ramdisk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/web"
)

// Paths of what servers boot for inspection and installation.
const (
	deployISO     = "/deploy.iso"
	deployKernel  = "/deploy.kernel"
	deployRamdisk = "/deploy.initramfs"
)

// Media serves disk images, and what servers boot before they have one.
type Media struct {
	// DeployISO is the URL of the ISO with the deploy agent, DeployKernel and DeployRamdisk are those of its parts for a boot by network.
	// They are empty where the rack emulates the agent.
	DeployISO, DeployKernel, DeployRamdisk string

	server *web.Server
	mu     sync.Mutex
	files  map[string]content
	reads  map[string]int
}

// content opens what is served.
type content func() (io.ReadSeekCloser, error)

// An Image is a disk image that Media serves.
type Image struct {
	URL string
	// Checksum is the SHA-256 of the content, in hexadecimal.
	Checksum string
}

func startMedia(host string) (*Media, error) {
	m := &Media{files: map[string]content{}, reads: map[string]int{}}
	// The size of the smallest ISO 9660 file system.
	m.files[deployISO] = inMemory(make([]byte, 64<<10))
	m.files[deployKernel], m.files[deployRamdisk] = inMemory([]byte("kernel")), inMemory([]byte("ramdisk"))
	var err error
	if m.server, err = web.Start(host, m); err != nil {
		return nil, err
	}
	m.DeployISO, m.DeployKernel, m.DeployRamdisk = m.server.URL+deployISO, m.server.URL+deployKernel, m.server.URL+deployRamdisk
	return m, nil
}

// addRamdisk serves what real servers boot by network, instead of nothing.
func (m *Media) addRamdisk(bin string) error {
	archive, err := ramdisk.Build(bin)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[deployKernel] = func() (io.ReadSeekCloser, error) { return os.Open(ramdisk.Kernel(bin)) }
	m.files[deployRamdisk] = inMemory(archive)
	return nil
}

// Add serves an image under a name.
func (m *Media) Add(name string, image []byte) Image {
	sum := sha256.Sum256(image)
	return m.add(name, inMemory(image), sum[:])
}

// AddFile serves an image that is a file, which must not change, under a name.
func (m *Media) AddFile(name, path string) (Image, error) {
	file, err := os.Open(path)
	if err != nil {
		return Image{}, fmt.Errorf("serving image %s, %w", name, err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return Image{}, fmt.Errorf("serving image %s, %w", name, err)
	}
	return m.add(name, func() (io.ReadSeekCloser, error) { return os.Open(path) }, sum.Sum(nil)), nil
}

func (m *Media) add(name string, image content, sum []byte) Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files["/"+name] = image
	return Image{URL: fmt.Sprintf("%s/%s", m.server.URL, name), Checksum: hex.EncodeToString(sum)}
}

func inMemory(image []byte) content {
	return func() (io.ReadSeekCloser, error) { return nopCloser{bytes.NewReader(image)}, nil }
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// Downloads is how often an image was downloaded.
func (m *Media) Downloads(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads["/"+name]
}

// ServeHTTP serves one of the files.
func (m *Media) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	open, ok := m.files[r.URL.Path]
	if ok && r.Method == http.MethodGet {
		m.reads[r.URL.Path]++
	}
	m.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	image, err := open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = image.Close() }() // nothing was written
	http.ServeContent(w, r, r.URL.Path, time.Time{}, image)
}

// Close stops serving.
func (m *Media) Close() error { return m.server.Close() }
