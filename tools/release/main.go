// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes container images and the files of a release of what is built already, signs them, and pushes them
// to a registry. The same commit and key always give the same files: they have no times but the commit's, no names of
// folders, and signatures without random numbers. `make images`, `make release`, `make release-sign` and
// `make release-push` run it; docs/release.md says what the files are.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "images":
			return runImages(args[1:])
		case "make":
			return runMake(args[1:])
		case "sign":
			return runSign(args[1:])
		case "push":
			return runPush(args[1:])
		case "registry":
			return runRegistry(args[1:])
		}
	}
	return errors.New("usage: release images FLAGS, release make FLAGS, release sign FLAGS, release push FLAGS, or release registry [ADDRESS]")
}

// flags are those of the commands that make something of the programs of images, which are named after them.
func (r *release) flags(command string, out *string) *flag.FlagSet {
	flags := flag.NewFlagSet("release "+command, flag.ContinueOnError)
	flags.StringVar(out, "out", "", "folder that is written to")
	flags.StringVar(&r.programs, "programs", "", "folder of the programs, each at <os>-<architecture>/<name>")
	flags.StringVar(&r.registry, "registry", "", "registry and path in it that images and charts are named for")
	flags.StringVar(&r.tag, "tag", "", "version of the release, such as v0.1.0, and tag of the images")
	flags.StringVar(&r.version, "version", "", "version that the programs say")
	flags.StringVar(&r.revision, "revision", "", "commit")
	flags.StringVar(&r.source, "source", "", "address of the source")
	flags.Func("created", "time of the release and of all files in it, in seconds since 1970", func(text string) error {
		seconds, err := strconv.ParseInt(text, 10, 64)
		r.created = time.Unix(seconds, 0).UTC()
		return err
	})
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: release %s FLAGS IMAGE...\n", command)
		flags.PrintDefaults()
	}
	return flags
}

func runImages(args []string) error {
	r := release{}
	var out, platforms string
	flags := r.flags("images", &out)
	flags.StringVar(&platforms, "platforms", "linux/amd64", "platforms, separated by commas")
	if err := parse(flags, args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("--platforms: %q is not a platform such as linux/amd64, %w", text, err)
		}
		r.platforms = append(r.platforms, *platform)
	}
	if r.names = flags.Args(); len(r.names) == 0 {
		return errors.New("no program is named")
	}
	return r.writeImageArchives(out)
}

func runMake(args []string) error {
	r := release{}
	var out, plugins string
	flags := r.flags("make", &out)
	flags.StringVar(&r.repository, "repository", "", "folder of the repository")
	flags.StringVar(&r.images, "images", "", "folder of the archives of images, as `make images` makes them")
	flags.StringVar(&plugins, "plugins", "", "folders of the plugin's commands in the repository, separated by blanks")
	flags.StringVar(&r.helm, "helm", "", "path of Helm, which makes the charts what registries hold")
	if err := parse(flags, args); err != nil {
		return err
	}
	r.names, r.plugins = flags.Args(), strings.Fields(plugins)
	return replace(out, r.write)
}

// runSign starts no other program: the key is in its environment.
func runSign(args []string) error {
	var from string
	flags := flag.NewFlagSet("release sign", flag.ContinueOnError)
	flags.StringVar(&from, "from", "", "folder of the release")
	if err := parse(flags, args); err != nil {
		return err
	}
	key, err := keyOf(os.Getenv("COSIGN_KEY"), os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return err
	}
	return sign(from, key)
}

func runPush(args []string) error {
	var from, registry string
	flags := flag.NewFlagSet("release push", flag.ContinueOnError)
	flags.StringVar(&from, "from", "", "folder of the release")
	flags.StringVar(&registry, "registry", "", "registry and path in it")
	if err := parse(flags, args); err != nil {
		return err
	}
	return push(from, registry)
}

// runRegistry is an empty registry, for tests and to try things out, on loopback if no address such as 0.0.0.0:5000 is given. It prints
// where it listens, and ends with its standard input.
func runRegistry(args []string) error {
	address, stop, err := serveRegistry(slices.Concat(args, []string{loopback})[0])
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(address)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// parse needs all flags but the list of plugins, which may be empty, and the time.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	var missing error
	flags.VisitAll(func(f *flag.Flag) {
		if f.Value.String() == "" && f.Name != "plugins" && f.Name != "created" && missing == nil {
			missing = fmt.Errorf("--%s is missing", f.Name)
		}
	})
	return missing
}

// replace has a folder written beside out, which takes its place when it is complete. A folder that is no release is left alone.
func replace(out string, write func(dir, scratch string) error) error {
	entries, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, sumsFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has files and is no release, and would be replaced: name another folder", out)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(out), ".release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	dir := filepath.Join(scratch, "complete")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := write(dir, scratch); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(dir, out)
}
