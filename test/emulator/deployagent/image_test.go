// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"crypto/md5"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

func TestImageWriteFailure(t *testing.T) {
	sums := "0123 other.img\n" + sha256Of(image) + " *image\n"
	cases := map[string]struct {
		reason string
		info   map[string]any
		drive  string
		faults []faults.Fault
		want   string // part of the error; empty if it is written
	}{
		"Checksum": {
			reason: "an image with another checksum is not kept",
			info:   map[string]any{"urls": []string{"/files/image"}, "os_hash_algo": "sha256", "os_hash_value": sha256Of(nil)},
			want:   "wanted is " + sha256Of(nil),
		},
		"Missing": {
			reason: "the image does not exist",
			info:   map[string]any{"urls": []string{"/files/nothing"}, "checksum": sha256Of(image)}, want: "404 Not Found",
		},
		"SecondURL": {
			reason: "any of the URLs will do",
			info:   map[string]any{"urls": []string{"/files/nothing", "/files/image"}, "checksum": sha256Of(image)},
		},
		"MD5": {
			reason: "images are still published with it",
			info:   map[string]any{"urls": []string{"/files/image"}, "checksum": hexMD5(image)},
		},
		"ChecksumAtURL": {
			reason: "a file of sums has one for each image",
			info:   map[string]any{"urls": []string{"/files/image"}, "os_hash_algo": "sha256", "os_hash_value": "/files/sums"},
		},
		"NoChecksumAtURL": {
			reason: "a file of sums without this image",
			info:   map[string]any{"urls": []string{"/files/unlisted"}, "checksum": "/files/sums"}, want: "no checksum for unlisted",
		},
		"Algorithm": {
			reason: "an unknown algorithm cannot be checked",
			info:   map[string]any{"urls": []string{"/files/image"}, "os_hash_algo": "crc32", "os_hash_value": "1"},
			want:   `"crc32" is not supported`,
		},
		"NoChecksum": {reason: "the real agent requires one", info: map[string]any{"urls": []string{"/files/image"}}, want: "neither checksum"},
		"NoURL":      {reason: "there must be an image", info: map[string]any{"checksum": "1"}, want: "no urls"},
		"ConfigDrive": {
			reason: "a config drive is base64 of gzip",
			info:   map[string]any{"urls": []string{"/files/image"}, "checksum": sha256Of(image)}, drive: "???", want: "not base64",
		},
		"Fault": {
			reason: "the disk has a fault",
			info:   map[string]any{"urls": []string{"/files/image"}, "checksum": sha256Of(image)},
			faults: []faults.Fault{{Kind: faults.ImageWriteFails}}, want: "/dev/nvme0n1 failed with exit code 1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ironic := newFakeIronic(t)
			ironic.serve("image", image)
			ironic.serve("unlisted", image)
			ironic.serve("sums", []byte(sums))
			var urls []string
			given, _ := tc.info["urls"].([]string)
			for _, path := range given {
				urls = append(urls, ironic.URL+path)
			}
			tc.info["urls"] = urls
			for _, key := range []string{"checksum", "os_hash_value"} {
				if value, ok := tc.info[key].(string); ok && strings.HasPrefix(value, "/") {
					tc.info[key] = ironic.URL + value
				}
			}
			b := boot(t, ironic, Parameters{}, tc.faults...).known()
			command := b.writeImage(tc.info, tc.drive)
			installed, err := b.disk.Installed()
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if command.Status != succeeded || installed == nil {
					t.Errorf("%s: %+v", tc.reason, command)
				}
				return
			}
			if command.Status != failed || command.Error == nil || !strings.Contains(command.Error.Details, tc.want) {
				t.Errorf("%s: %+v %+v, want %q", tc.reason, command, command.Error, tc.want)
			}
			if installed != nil {
				t.Errorf("%s: the disk has %+v", tc.reason, installed)
			}
		})
	}
}

func hexMD5(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}
