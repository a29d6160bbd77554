// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the pages in docs/. It runs the commands of the pages for operators on a sandbox, and compares
// their output with that of the page. It also checks messages, versions and links.
//
// How a page is read: a YAML block whose first line is a comment with the name of a file is that file. In a console
// block, a line that begins with "$ " is a command, which a backslash or a here-document continues; what follows is its
// output. In output, ... matches anything, within a line or any number of lines, and runs of blanks match one blank. A
// block of commands without "$ " is a script. A comment marks commands that cannot run on a sandbox, with the reason:
//
//	<!-- not run: REASON -->
package docs
