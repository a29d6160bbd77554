// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images packs programs that are built already into container images, without a registry, a daemon or a base
// image: each becomes an OCI image archive with a manifest for each platform. The same programs and flags always give
// the same digest. `make images` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// release is what all images of one run have in common.
type release struct {
	registry, tag, version, revision, source string
	created                                  time.Time
	platforms                                []v1.Platform
	// programs is the folder of the programs, each at <os>-<architecture>/<name>.
	programs string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r := release{}
	var out, platforms string
	var created int64
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.StringVar(&r.registry, "registry", "", "registry and path in it that the images are named for")
	flags.StringVar(&r.tag, "tag", "", "tag of the images")
	flags.StringVar(&r.version, "version", "", "version, for the label org.opencontainers.image.version")
	flags.StringVar(&r.revision, "revision", "", "commit, for the label org.opencontainers.image.revision")
	flags.StringVar(&r.source, "source", "", "address of the source, for the label org.opencontainers.image.source")
	flags.Int64Var(&created, "created", 0, "time of the images and of all files in them, in seconds since 1970")
	flags.StringVar(&r.programs, "programs", "", "folder of the programs, each at <os>-<architecture>/<name>")
	flags.StringVar(&platforms, "platforms", "linux/amd64", "platforms, separated by commas")
	flags.StringVar(&out, "out", "", "folder that the archives are written into, as <name>.tar")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: images FLAGS NAME...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, name := range []string{"registry", "tag", "version", "programs", "out"} {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s is missing", name)
		}
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("no program is named")
	}
	r.created = time.Unix(created, 0).UTC()
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("--platforms: %q is not a platform such as linux/amd64, %w", text, err)
		}
		r.platforms = append(r.platforms, *platform)
	}
	for _, name := range flags.Args() {
		index, err := r.image(name)
		if err != nil {
			return fmt.Errorf("making the image of %s, %w", name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return fmt.Errorf("making the image of %s, %w", name, err)
		}
		file := filepath.Join(out, name+".tar")
		if err := writeArchive(file, r.reference(name), r.tag, index); err != nil {
			return fmt.Errorf("writing the image of %s, %w", name, err)
		}
		fmt.Printf("%s@%s\n  %s\n", r.reference(name), digest, file)
	}
	return nil
}

func (r release) reference(name string) string {
	return strings.TrimSuffix(r.registry, "/") + "/" + name + ":" + r.tag
}
