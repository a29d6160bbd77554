// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Columns of a list of servers, in CSV and in YAML.
const (
	columnName        = "name"
	columnNamespace   = "namespace"
	columnBMC         = "bmc"
	columnUsername    = "username"
	columnPassword    = "password"
	columnCredentials = "credentials"
	columnMAC         = "mac"
	columnRack        = "rack"
	columnZone        = "zone"
	columnLabels      = "labels"
	columnUnverified  = "disableCertificateVerification"
	columnBootMode    = "bootMode"
	// prefixHints begins the column of each field of spec.rootDeviceHints.
	prefixHints = "rootDeviceHints."
)

var listColumns = []string{columnName, columnNamespace, columnBMC, columnUsername, columnPassword, columnCredentials, columnMAC, columnRack,
	columnZone, columnLabels, columnUnverified, columnBootMode}

func isColumn(name string) bool {
	return slices.Contains(listColumns, name) || slices.Contains(hintColumns(), name)
}

// columnsLike lists the columns that a wrong name may stand for: the fields of rootDeviceHints if the name has their
// prefix, or else all.
func columnsLike(name string) string {
	if strings.HasPrefix(name, prefixHints) {
		return strings.Join(hintColumns(), ", ")
	}
	return strings.Join(listColumns, ", ") + ", " + prefixHints + "FIELD"
}

// serverList is a parsed file with servers. Some cells are passwords, so nothing prints a cell of an unknown column.
type serverList struct {
	file     string
	rows     []row
	problems []problem
}

type row struct {
	position
	cells map[string]cell
	// labels are in the order of the file.
	labels []label
}

// position is a place in a file, from line 1 and column 1.
type position struct{ line, column int }

type cell struct {
	position
	value string
}

type label struct {
	position
	key, value string
}

// cell returns the cell of a column. A missing cell is empty and has the position of the row.
func (r *row) cell(column string) cell {
	if cell, is := r.cells[column]; is {
		return cell
	}
	return cell{position: r.position}
}

type problem struct {
	position
	text string
}

func (l *serverList) wrong(position position, format string, arguments ...any) {
	l.problems = append(l.problems, problem{position, fmt.Sprintf(format, arguments...)})
}

// lines returns the problems in the order of the file, one a line.
func (l *serverList) lines() []string {
	slices.SortStableFunc(l.problems, func(a, b problem) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	lines := make([]string, len(l.problems))
	for i, problem := range l.problems {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", l.file, problem.line, problem.column, problem.text)
	}
	return lines
}

// parseServers reads a list of servers. The suffix of the file's name selects the format.
func parseServers(file string, content []byte) (*serverList, error) {
	list := &serverList{file: file}
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // spreadsheets write a byte order mark
	switch filepath.Ext(file) {
	case ".csv":
		list.parseCSV(content)
	case ".yaml", ".yml":
		list.parseYAML(content)
	default:
		return nil, fmt.Errorf("--filename is %q: it must end with .csv, .yaml or .yml", file)
	}
	if len(list.rows) == 0 && len(list.problems) == 0 {
		list.wrong(position{1, 1}, "there is no server in it")
	}
	return list, nil
}

func (l *serverList) parseCSV(content []byte) {
	reader := csv.NewReader(bytes.NewReader(content))
	header, ok := l.readCSV(reader)
	if !ok {
		return
	}
	known := 0
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
		if isColumn(header[i]) {
			known++
		}
	}
	if known == 0 { // perhaps a server, with its password
		l.wrong(position{1, 1}, "the first line has no column: write the names of columns, separated by commas, out of %s",
			columnsLike(""))
		return
	}
	for i, name := range header {
		if line, column := reader.FieldPos(i); !isColumn(name) {
			l.wrong(position{line, column}, "the column %q does not exist: write one of %s", name, columnsLike(name))
		} else if slices.Contains(header[:i], name) {
			l.wrong(position{line, column}, "the column %s is there twice: leave one out", name)
		}
	}
	for {
		values, ok := l.readCSV(reader)
		if !ok {
			return
		}
		if values == nil {
			continue
		}
		server := row{cells: map[string]cell{}}
		for i, value := range values {
			line, column := reader.FieldPos(i)
			place := position{line, column}
			if i == 0 {
				server.position = place
			}
			if header[i] != columnPassword {
				value = strings.TrimSpace(value)
			}
			if header[i] != columnLabels {
				server.cells[header[i]] = cell{place, value}
				continue
			}
			for _, pair := range strings.Fields(value) {
				key, value, isPair := strings.Cut(pair, "=")
				if !isPair {
					l.wrong(place, "labels has %q: write KEY=VALUE, with blanks between several", pair)
					continue
				}
				server.labels = append(server.labels, label{place, key, value})
			}
		}
		l.rows = append(l.rows, server)
	}
}

// readCSV returns the values of the next line, or nil for a wrong line, which it reports as a problem. ok is false
// when no line can follow.
func (l *serverList) readCSV(reader *csv.Reader) (values []string, ok bool) {
	values, err := reader.Read()
	var wrong *csv.ParseError
	switch {
	case err == nil:
		return values, true
	case errors.Is(err, io.EOF):
		return nil, false
	case errors.Is(err, csv.ErrFieldCount):
		line, column := reader.FieldPos(0)
		l.wrong(position{line, column}, "the line has %d values, and the first line has %d columns: put a value with a comma into quotes",
			len(values), reader.FieldsPerRecord)
		return nil, true
	case errors.As(err, &wrong):
		l.wrong(position{wrong.Line, wrong.Column}, "a quote is at a wrong place: put the whole value into quotes, and double those in it, "+
			`as in "a""b"; the lines from here on were not checked`)
	default:
		l.wrong(position{1, 1}, "it cannot be read: %v", err)
	}
	return nil, false
}

// yamlLine matches the line number in an error of the parser. The rest of the error may contain a value of the file,
// such as a password.
var yamlLine = regexp.MustCompile(`line (\d+)`)

func (l *serverList) parseYAML(content []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, next yaml.Node
	err := decoder.Decode(&document)
	if err == nil {
		err = decoder.Decode(&next)
		if err == nil {
			l.wrong(position{next.Line, 1}, "there is a second document: write one list")
			return
		}
	}
	if !errors.Is(err, io.EOF) {
		place := position{1, 1}
		if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
			_, _ = fmt.Sscan(found[1], &place.line) // the pattern matches only digits
		}
		l.wrong(place, "it is not YAML: check the indentation, and put values with other characters than letters and digits into quotes")
		return
	}
	if document.Kind == 0 {
		return
	}
	root := document.Content[0]
	if root.Kind != yaml.SequenceNode {
		l.wrong(positionOf(root), "it is not a list: write servers as - %s: NAME and so on; objects of Kubernetes are for kubectl apply",
			columnName)
		return
	}
	for _, item := range root.Content {
		if item.Kind != yaml.MappingNode {
			l.wrong(positionOf(item), "it is not a server: write KEY: VALUE, with keys out of %s", columnsLike(""))
			continue
		}
		server := row{position: positionOf(item), cells: map[string]cell{}}
		l.eachYAML(item, func(key, value *yaml.Node) {
			switch {
			case !isColumn(key.Value):
				l.wrong(positionOf(key), "the key %q does not exist: write one of %s", key.Value, columnsLike(key.Value))
			case key.Value == columnLabels && value.Kind == yaml.MappingNode:
				l.eachYAML(value, func(key, value *yaml.Node) {
					if text, ok := l.text("the label "+key.Value, value); ok {
						server.labels = append(server.labels, label{positionOf(key), key.Value, text})
					}
				})
			case key.Value == columnLabels:
				l.wrong(positionOf(value), "labels is no map: write KEY: VALUE below it")
			default:
				if text, ok := l.text(key.Value, value); ok {
					server.cells[key.Value] = cell{positionOf(value), text}
				}
			}
		})
		l.rows = append(l.rows, server)
	}
}

// eachYAML visits each key of a map once, and reports repeated keys.
func (l *serverList) eachYAML(node *yaml.Node, visit func(key, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind == yaml.ScalarNode && seen[key.Value] {
			l.wrong(positionOf(key), "the key %s is there twice: leave one out", key.Value)
			continue
		}
		seen[key.Value] = true
		visit(key, value)
	}
}

// text returns the value as it is written: 0123 is not read as a number, nor no as a boolean.
func (l *serverList) text(what string, value *yaml.Node) (string, bool) {
	switch {
	case value.Kind != yaml.ScalarNode:
		l.wrong(positionOf(value), "%s is no text: write one value, in quotes if it begins with another character than a letter or a digit", what)
		return "", false
	case value.Tag == "!!null":
		return "", true
	}
	return value.Value, true
}

func positionOf(node *yaml.Node) position { return position{node.Line, node.Column} }
