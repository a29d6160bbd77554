// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/liggitt/tabwriter"
	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/get"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// output has the flags of "kubectl get" that a command supports for its output.
type output struct {
	*get.PrintFlags
	// csv: the command supports -o csv, too.
	csv bool
	// everywhere, selector and watch are the flags of "kubectl get" that select what is listed.
	everywhere, watch bool
	selector          string
	// selected is the parsed selector. Nil selects everything.
	selected labels.Selector
}

func (f *output) format() string { return *f.OutputFormat }

// isForPeople reports whether the output is for people: no format for programs is set.
func (f *output) isForPeople() bool {
	return (f.format() == "" || f.format() == "wide") && *f.TemplateFlags.TemplateArgument == ""
}

// check returns an error for a wrong flag.
func (f *output) check() (err error) {
	if f.selected, err = labels.Parse(f.selector); err != nil {
		return fmt.Errorf("--selector is %q: %w", f.selector, err)
	}
	if f.csv && f.format() == "csv" {
		return nil
	}
	_, err = f.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		formats := f.AllowedFormats()
		if f.csv {
			formats = append(formats, "csv")
		}
		return fmt.Errorf("--output is %q: it must be one of %s", f.format(), strings.Join(formats, ", "))
	}
	return err
}

// selects reports whether the selector matches an object with these labels.
func (f *output) selects(found map[string]string) bool { return f.selected.Matches(labels.Set(found)) }

func (o *options) addOutput(command *cobra.Command) *cobra.Command {
	return o.addFlags(command, &output{PrintFlags: newPrintFlags()})
}

// addTable adds -o and the flags for tables to a command.
func (o *options) addTable(command *cobra.Command) *cobra.Command {
	return o.addFlags(command, tableOutput())
}

// addList adds -o, the flags for tables and the flags that select objects to a command.
func (o *options) addList(command *cobra.Command) *cobra.Command {
	shown := tableOutput()
	labelled := get.NewHumanPrintFlags()
	shown.HumanReadableFlags.ColumnLabels, shown.HumanReadableFlags.ShowLabels = labelled.ColumnLabels, labelled.ShowLabels
	flags := command.Flags()
	flags.BoolVarP(&shown.everywhere, "all-namespaces", "A", false, "List those of all namespaces, whatever --namespace says. So it is "+
		"without --namespace.")
	flags.StringVarP(&shown.selector, "selector", "l", "", "List those with these labels only, as kubectl's get has it: KEY=VALUE, "+
		"KEY!=VALUE, KEY in (A,B), KEY.")
	flags.BoolVarP(&shown.watch, "watch", "w", false, "After the list, print each that is new or has changed, until Ctrl-C.")
	return o.addFlags(command, shown)
}

// newPrintFlags returns the print flags of "kubectl get" that apply to any object.
func newPrintFlags() *get.PrintFlags {
	flags := get.NewGetPrintFlags()
	flags.HumanReadableFlags, flags.NoHeaders = &get.HumanPrintFlags{}, nil
	return flags
}

func tableOutput() *output {
	flags, all := newPrintFlags(), get.NewGetPrintFlags()
	flags.NoHeaders, flags.HumanReadableFlags.SortBy = all.NoHeaders, all.HumanReadableFlags.SortBy
	return &output{PrintFlags: flags}
}

func (o *options) addFlags(command *cobra.Command, shown *output) *cobra.Command {
	shown.AddFlags(command)
	_ = command.Flags().MarkHidden("show-managed-fields") // there are none
	command.PreRunE = func(*cobra.Command, []string) error {
		if o.output = shown; shown.everywhere {
			*o.management.Namespace = metav1.NamespaceAll
		}
		return shown.check()
	}
	return command
}

// listing is the output of a command that lists.
type listing struct {
	columns []metav1.TableColumnDefinition
	// kind is the kind of the items in output for programs.
	kind string
	// about is the kind of the objects that -o name prints. Empty: -o name is an error.
	about schema.GroupVersionKind
	items []item
}

// item is an entry of a listing: a line for people and a value for programs.
type item struct {
	cells []string
	value any
}

func (l *listing) add(value any, cells ...string) { l.items = append(l.items, item{cells, value}) }

func (l *listing) objects() ([]unstructured.Unstructured, error) {
	objects := make([]unstructured.Unstructured, len(l.items))
	for i, item := range l.items {
		content, err := json.Marshal(item.value)
		if err == nil {
			err = utiljson.Unmarshal(content, &objects[i].Object)
		}
		if err != nil {
			return nil, err
		}
		if objects[i].Object == nil { // only people see this line
			objects[i].Object = map[string]any{}
		}
		view.PlainAll(&objects[i].Object)
		objects[i].SetAPIVersion(view.SnapshotVersion)
		objects[i].SetKind(l.kind)
	}
	return objects, nil
}

// table returns the table for people. It takes labels and sort keys from the objects, which may be nil.
func (l *listing) table(objects []unstructured.Unstructured) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: l.columns}
	for i, item := range l.items {
		row := metav1.TableRow{Cells: make([]any, len(item.cells))}
		for j, cell := range item.cells {
			row.Cells[j] = cmp.Or(view.Shown(cell), "-")
		}
		if objects != nil {
			row.Object.Object = &objects[i]
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// columns returns the columns with these heads. -o wide alone shows a column whose head ends with a star.
func columns(heads ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, len(heads))
	for i, head := range heads {
		name, wide := strings.CutSuffix(head, "*")
		definitions[i].Name = name
		if wide {
			definitions[i].Priority = 1
		}
	}
	return definitions
}

func (o *options) printer() (printers.ResourcePrinter, error) {
	printer, err := o.output.ToPrinter()
	if err != nil {
		return nil, err
	}
	if width := widthOf(o.Out); width > 0 && o.output.isForPeople() {
		printer = fitting{printer, o.output.format() == "wide", width}
	}
	if field := o.output.HumanReadableFlags.SortBy; field != nil && *field != "" {
		printer = &get.SortingPrinter{Delegate: printer, SortField: *field}
	}
	return printer, nil
}

func (o *options) print(list listing) error {
	if len(list.items) == 0 && o.output.isForPeople() {
		fmt.Fprintln(o.ErrOut, "nothing found")
		return nil
	}
	printer, err := o.printer()
	if err != nil {
		return err
	}
	objects, err := list.objects()
	if err != nil {
		return err
	}
	if o.output.isForPeople() {
		return printer.PrintObj(list.table(objects), o.Out)
	}
	if err := o.rename(&list, objects); err != nil {
		return err
	}
	all := &unstructured.UnstructuredList{Items: objects}
	all.SetAPIVersion("v1")
	all.SetKind("List")
	return printer.PrintObj(all, o.Out)
}

// list prints the listing of the fleet. With --watch, it then prints each new or changed item.
func (o *options) list(ctx context.Context, listed func(*view.Fleet) listing) error {
	if !o.output.watch {
		fleet, err := o.fleet(ctx)
		if err != nil {
			return err
		}
		return o.print(listed(fleet))
	}
	if o.snapshot != "" {
		return errors.New("--snapshot is set, and --watch follows clusters: leave one of them out")
	}
	live, err := o.follow(ctx)
	if err != nil {
		return err
	}
	printer, err := o.printer()
	if err != nil {
		return err
	}
	aligned := printers.GetNewTabWriter(o.Out)
	printed, lost := map[string]bool{}, ""
	for now, next := follow(ctx, live); ; {
		all, fresh, objects := listed(now.Fleet), []item{}, []unstructured.Unstructured{}
		current, err := all.objects()
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for i := range current {
			content, err := json.Marshal(current[i].Object)
			if err != nil {
				return err
			}
			if seen[string(content)] = true; !printed[string(content)] {
				fresh, objects = append(fresh, all.items[i]), append(objects, current[i])
			}
		}
		printed, all.items = seen, fresh
		if err := o.printEach(printer, aligned, &all, objects); err != nil {
			return err
		}
		if now.lost != "" && now.lost != lost {
			fmt.Fprintf(o.ErrOut, "warning: %s. What was printed is old until it answers\n", view.Plain(now.lost))
		}
		lost = now.lost
		changed, is := next().(fleetNow)
		if !is {
			return nil
		}
		now = changed
	}
}

// printEach prints lines of a table, or single objects, as kubectl does with --watch.
func (o *options) printEach(printer printers.ResourcePrinter, aligned *tabwriter.Writer, list *listing,
	objects []unstructured.Unstructured) error {
	if o.output.isForPeople() {
		if err := printer.PrintObj(list.table(objects), aligned); err != nil {
			return err
		}
		return aligned.Flush()
	}
	if err := o.rename(list, objects); err != nil {
		return err
	}
	for i := range objects {
		if err := printer.PrintObj(&objects[i], o.Out); err != nil {
			return err
		}
	}
	return nil
}

// rename makes -o name print the names of the objects that the items are about.
func (o *options) rename(list *listing, objects []unstructured.Unstructured) error {
	if o.output.format() != "name" {
		return nil
	}
	if list.about.Empty() {
		return errors.New("--output is \"name\": what is listed are no objects, and have no names")
	}
	for i := range objects {
		objects[i].SetGroupVersionKind(list.about)
	}
	return nil
}

// widthOf returns the number of columns of a terminal, or 0 if out is not a terminal.
func widthOf(out io.Writer) int {
	if !isTerminal(out) {
		return 0
	}
	width, _, _ := term.GetSize(int(out.(*os.File).Fd())) // isTerminal has checked the type
	return width
}

// fitting is a printer that prints tables no wider than a terminal.
type fitting struct {
	printers.ResourcePrinter
	wide  bool
	width int
}

// PrintObj implements printers.ResourcePrinter.
func (f fitting) PrintObj(object runtime.Object, out io.Writer) error {
	if table, is := object.(*metav1.Table); is {
		object = fit(table, f.wide, f.width)
	}
	return f.ResourcePrinter.PrintObj(object, out)
}

// columnGap is the number of spaces that kubectl leaves between columns.
const columnGap = 3

// fit wraps the longest cells of a table until its lines have at most width characters. It breaks within words only
// if breaks between words are not enough. A column is never narrower than its head.
func fit(table *metav1.Table, wide bool, width int) *metav1.Table {
	count, total := len(table.ColumnDefinitions), -columnGap
	widths, words, heads := make([]int, count), make([]int, count), make([]int, count)
	for i, column := range table.ColumnDefinitions {
		if column.Priority != 0 && !wide {
			continue
		}
		heads[i] = max(len(column.Name), columnGap) // kubectl makes no column narrower
		widths[i], words[i] = heads[i], heads[i]
		for _, row := range table.Rows {
			cell := row.Cells[i].(string)
			widths[i] = max(widths[i], ansi.StringWidth(cell))
			for word := range strings.FieldsSeq(cell) {
				words[i] = max(words[i], ansi.StringWidth(word))
			}
		}
		total += widths[i] + columnGap
	}
	for _, least := range [][]int{words, heads} {
		for ; total > width; total-- {
			widest := -1
			for i := range widths {
				if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	fitted := &metav1.Table{ColumnDefinitions: table.ColumnDefinitions}
	for _, row := range table.Rows {
		var lines []metav1.TableRow
		for i, cell := range row.Cells {
			text := cell.(string)
			if widths[i] > 0 { // the column is shown
				text = ansi.Hardwrap(wordwrap.WrapString(text, uint(widths[i])), widths[i], false)
			}
			for j, part := range strings.Split(text, "\n") {
				if j == len(lines) {
					lines = append(lines, metav1.TableRow{Cells: slices.Repeat([]any{""}, len(row.Cells))})
				}
				lines[j].Cells[i] = part
			}
		}
		lines[0].Object = row.Object
		fitted.Rows = append(fitted.Rows, lines...)
	}
	return fitted
}
