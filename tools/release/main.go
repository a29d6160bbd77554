// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes the files of a release of what is built already, signs them, and pushes them to a registry. The same commit and
// key always give the same files: they have no times but the commit's, no names of folders, and signatures without random numbers.
// `make release`, `make release-sign` and `make release-push` run it; docs/release.md says what the files are.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
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
		case "make":
			return runMake(args[1:])
		case "sign":
			return runSign(args[1:])
		case "push":
			return runPush(args[1:])
		case "registry":
			return runRegistry()
		}
	}
	return errors.New("usage: release make FLAGS, release sign FLAGS, release push FLAGS, or release registry")
}

func runMake(args []string) error {
	r := release{}
	var out, plugins string
	var created int64
	flags := flag.NewFlagSet("release make", flag.ContinueOnError)
	flags.StringVar(&out, "out", "", "folder of the release; one that was there before is replaced")
	flags.StringVar(&r.repository, "repository", "", "folder of the repository")
	flags.StringVar(&r.images, "images", "", "folder of the archives of images, as `make images` makes them")
	flags.StringVar(&r.programs, "programs", "", "folder of the plugin's programs, each at <os>-<architecture>/<name>")
	flags.StringVar(&plugins, "plugins", "", "folders of the plugin's commands in the repository, separated by blanks")
	flags.StringVar(&r.helm, "helm", "", "path of Helm, which makes the charts what registries hold")
	flags.StringVar(&r.registry, "registry", "", "registry and path in it that images and charts are named for")
	flags.StringVar(&r.tag, "tag", "", "version of the release, such as v0.1.0")
	flags.StringVar(&r.version, "version", "", "version that the programs say")
	flags.StringVar(&r.revision, "revision", "", "commit")
	flags.StringVar(&r.source, "source", "", "address of the source")
	flags.Int64Var(&created, "created", 0, "time of the release, in seconds since 1970")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: release make FLAGS IMAGE...")
		flags.PrintDefaults()
	}
	if err := parse(flags, args); err != nil {
		return err
	}
	r.names = flags.Args()
	r.created, r.plugins = time.Unix(created, 0).UTC(), strings.Fields(plugins)
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

// runRegistry is an empty registry, for tests and to try things out. It prints its address, and ends with its standard input.
func runRegistry() error {
	address, stop, err := serveRegistry()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(address)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// parse needs all flags but the list of plugins, which may be empty.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	var missing error
	flags.VisitAll(func(f *flag.Flag) {
		if f.Value.String() == "" && f.Name != "plugins" && missing == nil {
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
