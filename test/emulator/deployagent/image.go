// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5" // images are still published with it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// imageInfo is Ironic's description of the image to write.
type imageInfo struct {
	ID          string   `json:"id"`
	URLs        []string `json:"urls"`
	DiskFormat  string   `json:"disk_format"`
	Checksum    string   `json:"checksum"`
	HashAlgo    string   `json:"os_hash_algo"`
	HashValue   string   `json:"os_hash_value"`
	ConfigDrive string   `json:"configdrive"`
}

// writeError is a failure in the real agent's words.
func writeError(format string, args ...any) error {
	return &commandError{Type: "ImageWriteError", Code: 500, Message: "Error writing image to device", Details: fmt.Sprintf(format, args...)}
}

// writeImage fetches and checks an image, and writes it and the config drive to the disk. It returns a description.
func (a *Agent) writeImage(ctx context.Context, arguments map[string]any) (string, error) {
	info, err := parseImageInfo(arguments)
	if err != nil {
		return "", err
	}
	if a.options.Server.Faults.Has(faults.ImageWriteFails) {
		return "", writeError("Writing image to device %s failed with exit code 1. stdout: . stderr: qemu-img: error while writing at byte "+
			"1048576: Input/output error", a.diskName())
	}
	configDrive, err := a.configDrive(ctx, info.ConfigDrive)
	if err != nil {
		return "", writeError("reading the config drive, %v", err)
	}
	var failures []error
	for _, from := range info.URLs {
		image, err := a.fetch(ctx, info, from)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if err := a.options.Server.Disk.Commit(*image, configDrive); err != nil {
			return "", writeError("%v", err)
		}
		a.options.Logger.Info("Agent wrote an image", "url", from, "bytes", image.Bytes, "configDrive", len(configDrive))
		return fmt.Sprintf("image (%s) written to device %s", info.ID, a.diskName()), nil
	}
	return "", &commandError{Type: "ImageDownloadError", Code: 500, Message: "Error downloading image",
		Details: errors.Join(failures...).Error()}
}

func parseImageInfo(arguments map[string]any) (imageInfo, error) {
	refuse := func(format string, args ...any) (imageInfo, error) {
		return imageInfo{}, &commandError{Type: "InvalidCommandParamsError", Code: 400, Message: "Invalid command parameters",
			Details: fmt.Sprintf(format, args...)}
	}
	data, err := json.Marshal(arguments["image_info"])
	if err != nil {
		return refuse("image_info: %v", err)
	}
	info := imageInfo{}
	if err := json.Unmarshal(data, &info); err != nil {
		return refuse("image_info: %v", err)
	}
	if drive, ok := arguments["configdrive"].(string); ok && drive != "" {
		info.ConfigDrive = drive
	}
	switch {
	case len(info.URLs) == 0:
		return refuse("image_info has no urls")
	case info.Checksum == "" && info.HashValue == "":
		return refuse("image_info has neither checksum nor os_hash_value")
	}
	return info, nil
}

// fetch writes the image from one URL to the disk. It returns the image if the checksum matches.
func (a *Agent) fetch(ctx context.Context, info imageInfo, from string) (*disk.Image, error) {
	algorithm, wanted, err := a.checksum(ctx, info, from)
	if err != nil {
		return nil, fmt.Errorf("%s: finding its checksum, %w", from, err)
	}
	sum, err := newHash(algorithm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	response, err := a.get(ctx, from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	file, err := a.options.Server.Disk.Create()
	if err != nil {
		return nil, err
	}
	a.setState("writing %s", from)
	written, err := io.Copy(io.MultiWriter(file, sum), response.Body)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if found := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(found, wanted) {
		return nil, fmt.Errorf("%s: the image has the %s checksum %s, wanted is %s", from, algorithm, found, wanted)
	}
	return &disk.Image{URL: from, Format: info.DiskFormat, Checksum: algorithm + ":" + strings.ToLower(wanted), Bytes: written}, nil
}

// checksum returns the algorithm and the checksum of the image. The checksum can be at a URL, as for the real agent.
func (a *Agent) checksum(ctx context.Context, info imageInfo, image string) (algorithm, sum string, err error) {
	algorithm, sum = info.HashAlgo, info.HashValue
	if sum == "" {
		algorithm, sum = "", info.Checksum
	}
	if strings.HasPrefix(sum, "http://") || strings.HasPrefix(sum, "https://") {
		if sum, err = a.publishedChecksum(ctx, sum, image); err != nil {
			return "", "", err
		}
	}
	if algorithm == "" {
		switch len(sum) {
		case 2 * sha256.Size:
			algorithm = "sha256"
		case 2 * sha512.Size:
			algorithm = "sha512"
		default:
			algorithm = "md5"
		}
	}
	return algorithm, sum, nil
}

// publishedChecksum finds the sum of an image in a file of sums: the only one, or the one beside the name of the image.
func (a *Agent) publishedChecksum(ctx context.Context, from, image string) (string, error) {
	response, err := a.get(ctx, from)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("reading %s, %w", from, err)
	}
	parsed, err := url.Parse(image)
	if err != nil {
		return "", err
	}
	name := path.Base(parsed.Path)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 1:
			return fields[0], nil
		case len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == name:
			return fields[0], nil
		case len(fields) == 4 && fields[1] == "("+name+")": // SHA256 (name) = sum
			return fields[3], nil
		}
	}
	return "", fmt.Errorf("%s has no checksum for %s", from, name)
}

func newHash(algorithm string) (hash.Hash, error) {
	switch algorithm {
	case "md5":
		return md5.New(), nil // images are still published with it
	case "sha256":
		return sha256.New(), nil
	case "sha512":
		return sha512.New(), nil
	}
	return nil, fmt.Errorf("checksum algorithm %q is not supported: use md5, sha256 or sha512", algorithm)
}

func (a *Agent) get(ctx context.Context, from string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", from, response.Status)
	}
	return response, nil
}

// configDrive returns the config drive, which is compressed and encoded, inline or at a URL.
func (a *Agent) configDrive(ctx context.Context, given string) ([]byte, error) {
	if given == "" {
		return nil, nil
	}
	encoded := []byte(given)
	if strings.HasPrefix(given, "http://") || strings.HasPrefix(given, "https://") {
		response, err := a.get(ctx, given)
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		if encoded, err = io.ReadAll(io.LimitReader(response.Body, bodyLimit)); err != nil {
			return nil, fmt.Errorf("reading %s, %w", given, err)
		}
	}
	compressed, err := base64.StdEncoding.AppendDecode(nil, bytes.Join(bytes.Fields(encoded), nil))
	if err != nil {
		return nil, fmt.Errorf("it is not base64, %w", err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("it is not gzip, %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(reader, bodyLimit))
	if err != nil {
		return nil, fmt.Errorf("it is not gzip, %w", err)
	}
	return data, nil
}
