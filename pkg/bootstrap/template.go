// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
)

// Template is the text of a template and where it comes from.
type Template = plan.Template

// Values are a template's .Values. They have the reference's names.
type Values struct {
	// NodeClaim is the Machine. Its Spec also has the reference's TypeRef, ProviderRef, VClusterRef, DesiredCapacity.
	NodeClaim *v1alpha1.Machine
	// TypeRef and ProviderRef are the names of the NodeType and of its NodeProvider, for the Spec of NodeClaim.
	TypeRef, ProviderRef string
	// Project is the namespace of the Machine.
	Project string
	// Properties that are in effect for the Machine.
	Properties map[string]string
	// SSHKeys are lines for authorized_keys.
	SSHKeys       []string
	BareMetalHost *bmov1alpha1.BareMetalHost
	// AllocatedIP is the server's address, empty if it has none from us.
	AllocatedIP string
	// PrefixLength of the network that the address is in.
	PrefixLength int
	// Gateway of that network, empty if there is none.
	Gateway string
}

// TemplateError says what is wrong with a template, and where.
type TemplateError struct {
	// Template is the Name of the template.
	Template string
	// Line of the template, from 1; 0 if it is not known.
	Line int
	// Problem in one sentence, with the remedy if there is one.
	Problem string
}

// Error implements error.
func (e *TemplateError) Error() string {
	if e.Line == 0 {
		return e.Template + ": " + e.Problem
	}
	return fmt.Sprintf("%s, line %d: %s", e.Template, e.Line, e.Problem)
}

// Render returns the template's result. Equal values give equal bytes. A field that does not exist is an error: a
// server with half a configuration is worse than none. A property, label or annotation that is not set is empty. Too
// much time and a too large document are errors. The error is a *TemplateError.
func Render(t Template, values Values) ([]byte, error) {
	return render(t, values, renderTimeout)
}

func render(t Template, values Values, timeout time.Duration) ([]byte, error) {
	limits := &limits{deadline: time.Now().Add(timeout)}
	parsed, err := parseTemplate(t, limits)
	if err != nil {
		return nil, err
	}
	if err := parsed.Execute(limits, map[string]any{"Values": values.snapshot()}); err != nil {
		if errors.Is(err, errTooLarge) {
			return nil, &TemplateError{Template: t.Name,
				Problem: fmt.Sprintf("makes a document of more than %d bytes, which is more than Metal3 takes: write less, or have the server fetch "+
					"it at boot", MaxDocumentBytes)}
		}
		return nil, templateError(t, err)
	}
	return limits.out.Bytes(), nil
}

// CheckSyntax checks whether the text is a template at all. The error is a *TemplateError.
func CheckSyntax(t Template) error {
	_, err := parseTemplate(t, &limits{})
	return err
}

// parsedName stands for the template's own name, which may hold anything, in the messages of text/template.
const parsedName = "template"

func parseTemplate(t Template, limits *limits) (*template.Template, error) {
	parsed, err := template.New(parsedName).Option("missingkey=error").Funcs(limits.functions()).Parse(t.Text)
	if err != nil {
		return nil, templateError(t, err)
	}
	if err := rewrite(parsed); err != nil {
		return nil, templateError(t, err)
	}
	return parsed, nil
}

var (
	templatePosition  = regexp.MustCompile("^template: (?:" + parsedName + "|[^:]*):(\\d+)(?::\\d+)?: (?:executing \"[^\"]*\" at )?")
	undefinedFunction = regexp.MustCompile(`function "(\w+)" not defined`)
	ownFunction       = regexp.MustCompile(`^<[^>]*>: error calling (?:` + stepName + "|" + callName + "|" + printName + `): `)
	missingValue      = regexp.MustCompile(`<\.Values\.(\w+)[^>]*>: map has no entry for key "(\w+)"`)
)

// templateError takes text/template's message apart.
func templateError(t Template, err error) *TemplateError {
	found := &TemplateError{Template: t.Name, Problem: err.Error()}
	if match := templatePosition.FindStringSubmatch(found.Problem); match != nil {
		_, _ = fmt.Sscan(match[1], &found.Line)
		found.Problem = found.Problem[len(match[0]):]
	}
	found.Problem = ownFunction.ReplaceAllString(found.Problem, "")
	found.Problem = strings.TrimSuffix(strings.TrimPrefix(found.Problem, "template: "), " in type interface {}")
	if match := undefinedFunction.FindStringSubmatch(found.Problem); match != nil {
		found.Problem += ": the functions are those of text/template and sprig"
		for reason, names := range refused {
			if slices.Contains(names, match[1]) {
				found.Problem = fmt.Sprintf("function %q of sprig is not available, because it %s", match[1], reason)
			}
		}
	}
	if match := missingValue.FindStringSubmatch(found.Problem); match != nil && match[1] == match[2] {
		found.Problem += ": .Values has NodeClaim, Project, Properties, SSHKeys, BareMetalHost, AllocatedIP, PrefixLength and Gateway"
	}
	return found
}

// snapshot returns the values for templates: the NodeClaim also has the fields of the reference's NodeClaim.
func (v Values) snapshot() map[string]any {
	names := snapshot(reflect.ValueOf(v)).(map[string]any)
	delete(names, "TypeRef")
	delete(names, "ProviderRef")
	if v.NodeClaim != nil {
		spec := names["NodeClaim"].(map[string]any)["Spec"].(map[string]any)
		spec["TypeRef"], spec["ProviderRef"], spec["DesiredCapacity"], spec["VClusterRef"] = v.TypeRef, v.ProviderRef, spec["Resources"], ""
		if tenant := v.NodeClaim.Spec.TenantClusterRef; tenant != nil {
			spec["VClusterRef"] = tenant.Name
		}
	}
	return names
}

// snapshot returns a value as maps, lists, text, numbers and nil, with the fields of structs under their Go names.
// Templates get this instead of the objects: methods of objects can change them, and some make gigabytes of text.
func snapshot(value reflect.Value) any {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		if text, ok := value.Interface().(fmt.Stringer); ok && isScalar(value.Elem()) {
			return text.String()
		}
		return snapshot(value.Elem())
	case reflect.Struct:
		if pointer := reflect.New(value.Type()); isScalar(value) {
			pointer.Elem().Set(value)
			return snapshot(pointer)
		}
		fields := map[string]any{}
		addFields(fields, value)
		return fields
	case reflect.Map:
		all := make(map[string]any, value.Len())
		for entry := value.MapRange(); entry.Next(); {
			all[fmt.Sprint(entry.Key())] = snapshot(entry.Value())
		}
		if value.Type().Elem().Kind() == reflect.String {
			return entries(all)
		}
		return all
	case reflect.Slice, reflect.Array:
		if value.Type() == reflect.TypeFor[[]byte]() {
			return string(value.Bytes())
		}
		items := make([]any, value.Len())
		for i := range items {
			items[i] = snapshot(value.Index(i))
		}
		return items
	case reflect.String:
		return value.String()
	case reflect.Bool:
		return value.Bool()
	}
	switch {
	case value.CanInt():
		return int(value.Int())
	case value.CanUint():
		return int(value.Uint())
	case value.CanFloat():
		return value.Float()
	}
	return nil
}

// isScalar reports whether a struct is written as text, as quantities and times are.
func isScalar(value reflect.Value) bool {
	if value.Kind() != reflect.Struct {
		return false
	}
	_, isText := reflect.New(value.Type()).Interface().(interface {
		fmt.Stringer
		UnmarshalJSON(data []byte) error
	})
	return isText
}

// addFields adds the exported fields of a struct, and both embedded structs and their fields.
func addFields(fields map[string]any, value reflect.Value) {
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if field.Anonymous && value.Field(i).Kind() == reflect.Struct && !isScalar(value.Field(i)) {
			addFields(fields, value.Field(i))
		}
		fields[field.Name] = snapshot(value.Field(i))
	}
}
