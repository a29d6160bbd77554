// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs does what the pages in docs/ say. It runs the commands of the pages for operators, one page after the
// other, on a sandbox, and compares what they print with what is shown; and it holds messages, versions and links to what
// they are about.
//
// How a page is read: a YAML block whose first line is a comment with the name of a file is that file. In a console block,
// a line that begins with "$ " is a command, which a backslash or a here-document continues; what follows is its output.
// In output, ... stands for anything, within a line or for any number of lines, and blanks are counted as one. A block of
// commands without "$ " is a script. What cannot be run on a sandbox has a comment before it that says why:
//
//	<!-- not run: REASON -->
package docs
