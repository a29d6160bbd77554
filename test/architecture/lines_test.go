// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/scanner"
	"go/token"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the maximum length of a code line: two files fit side by side.
const maxColumns = 140

// TestLineLength fails for code lines of more than 140 characters. Literals without a blank cannot be broken, nor can what is
// in a raw literal of several lines, nor comments that are directives of a generator.
func TestLineLength(t *testing.T) {
	for path, text := range texts(t) {
		if strings.Contains(filepath.Base(path), "zz_generated") {
			continue
		}
		literals := linesOfLiterals(text)
		for n, line := range strings.Split(string(text), "\n") {
			long := utf8.RuneCountInString(line) > maxColumns
			if directive := strings.HasPrefix(strings.TrimSpace(line), "// +"); long && !directive && !literals[n+1] {
				t.Errorf("%s:%d has %d characters: break it after a comma or an operator", path, n+1, utf8.RuneCountInString(line))
			}
		}
	}
}

// goFiles are the paths of all Go files of the repository.
func goFiles(t *testing.T) []string {
	t.Helper()
	command := exec.Command("git", "ls-files", "*.go")
	command.Dir = root
	files, err := command.Output()
	if err != nil {
		t.Fatalf("git ls-files, %v", err)
	}
	return strings.Fields(string(files))
}

// texts are the Go files of the repository by their paths, with their text.
func texts(t *testing.T) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		t.Helper()
		for _, path := range goFiles(t) {
			text, err := os.ReadFile(filepath.Join(root, path))
			if os.IsNotExist(err) {
				continue // deleted, and not committed yet
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(path, text) {
				return
			}
		}
	}
}

// longWord is how long a part of a literal without a blank must be for the literal to be one that cannot be broken well.
const longWord = 60

// linesOfLiterals are the lines, counted from 1, that a raw literal of several lines spans or that have a literal which cannot
// be broken.
func linesOfLiterals(text []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		position, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind != token.STRING {
			continue
		}
		first := file.Line(position)
		for n := range strings.Count(literal, "\n") + 1 {
			if strings.Contains(literal, "\n") || hasLongWord(literal) {
				lines[first+n] = true
			}
		}
	}
}

func hasLongWord(literal string) bool {
	for word := range strings.FieldsSeq(literal) {
		if len(word) > longWord {
			return true
		}
	}
	return false
}
