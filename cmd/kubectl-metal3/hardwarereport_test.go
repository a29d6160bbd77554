// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHardwareReportIsAnonymous: of all strings that a host has, only those that say which model it is and what worked are printed. The
// strings of a field that Metal3 adds are among those that are looked for.
func TestHardwareReportIsAnonymous(t *testing.T) {
	snapshot, host, fields := fleet(), bmov1alpha1.BareMetalHost{}, map[string]string{}
	mark(reflect.ValueOf(&host).Elem(), "", fields)
	if len(fields) < 80 {
		t.Errorf("a host has only %d strings: %v", len(fields), fields)
	}
	snapshot.Management.Hosts = []bmov1alpha1.BareMetalHost{host}
	want := []string{".Spec.AutomatedCleaningMode", ".Spec.BootMode", ".Status.ErrorType", ".Status.HardwareDetails.CPU.Arch",
		".Status.HardwareDetails.CPU.Model", ".Status.HardwareDetails.Firmware.BIOS.Vendor", ".Status.HardwareDetails.Firmware.BIOS.Version",
		".Status.HardwareDetails.SystemVendor.Manufacturer", ".Status.HardwareDetails.SystemVendor.ProductName"}
	for _, format := range []string{"", "json", "yaml", "wide"} {
		out, problems, code := executeOn(t, snapshot, "hardware-report", "-o", format)
		if code != 0 {
			t.Fatalf("-o %s: exit code %d: %s", format, code, problems)
		}
		var printed []string
		for secret, field := range fields {
			if strings.Contains(out+problems, secret) {
				printed = append(printed, field)
			}
		}
		slices.Sort(printed)
		if diff := cmp.Diff(want, printed); diff != "" {
			t.Errorf("-o %s prints other fields of a host (-want +got):\n%s\n%s", format, diff, out)
		}
	}
}

// mark gives every string in a value a text of its own, and notes the field that has it.
func mark(value reflect.Value, path string, fields map[string]string) {
	switch value.Kind() {
	case reflect.String:
		secret := fmt.Sprintf("secret-%04d", len(fields))
		value.SetString(secret)
		fields[secret] = path
	case reflect.Pointer:
		if value.Type() != reflect.TypeFor[*metav1.Time]() {
			value.Set(reflect.New(value.Type().Elem()))
			mark(value.Elem(), path, fields)
		}
	case reflect.Struct:
		for field, part := range value.Fields() {
			if field.IsExported() {
				mark(part, path+"."+field.Name, fields)
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() != reflect.Uint8 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			mark(value.Index(0), path, fields)
		}
	case reflect.Map:
		key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		mark(key, path+" (key)", fields)
		mark(item, path, fields)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, item)
	}
}

// TestHardwareReportIsTheTable: a line that is printed can be put into the table of the page as it is.
func TestHardwareReportIsTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/supported-hardware.md")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ := execute(t, "hardware-report")
	if head := strings.Join(strings.SplitAfterN(out, "\n", 3)[:2], ""); !strings.Contains(string(page), head) {
		t.Errorf("docs/supported-hardware.md has no table with the head\n%s", head)
	}
}
