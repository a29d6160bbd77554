// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

const (
	// elementsLimit is how many values the JSON of a body may have. Two objects of etcd's maximum size have fewer.
	elementsLimit = 200_000
	// A body with more bytes or values than these is large. Only one large body is decoded at a time, and smaller ones
	// do not wait for it: Machines and pods are smaller.
	largeBytes, largeElements = 32 << 10, 4096
	// smallBytes is the size up to which the lengths in an object are not checked, because their square is small.
	smallBytes = 4 << 10
)

// elements counts the values of JSON that arrives in pieces. Memory depends more on their number than on the bytes:
// "{}," has three bytes, and can become a struct of hundreds.
type elements struct {
	count             int
	inString, escaped bool
}

// add counts commas and opening brackets outside of strings. Valid JSON has at most one value more.
func (e *elements) add(text []byte) {
	for _, c := range text {
		switch {
		case e.escaped:
			e.escaped = false
		case c == '"':
			e.inString = !e.inString
		case e.inString:
			e.escaped = c == '\\'
		case c == ',' || c == '{' || c == '[':
			e.count++
		}
	}
}

// shape holds the maximum lengths of the lists, maps and strings in a schema.
type shape struct {
	// most is the maximum number of items, keys or characters.
	most   int64
	fields map[string]*shape
	// rest is the shape of the items of a list, or of the values of a map.
	rest *shape
	// keepsUnknown marks an object that keeps fields that its schema does not name.
	keepsUnknown bool
}

// anything is the shape of values that a schema does not limit.
var anything = &shape{most: math.MaxInt64}

func init() { anything.rest = anything }

// shapes returns the shapes of our kinds, by kind.
func shapes() (map[string]*shape, error) {
	definitions, err := apis.ManagementCRDs()
	found := map[string]*shape{}
	for _, definition := range definitions {
		found[definition.Spec.Names.Kind] = shapeOf(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
	return found, err
}

func shapeOf(schema *apiextensionsv1.JSONSchemaProps) *shape {
	most := cmp.Or(schema.MaxItems, schema.MaxProperties, schema.MaxLength, &anything.most)
	s := &shape{most: *most, fields: map[string]*shape{}, rest: anything}
	for name, property := range schema.Properties {
		s.fields[name] = shapeOf(&property)
	}
	s.keepsUnknown = len(s.fields) > 0 && ptr.Deref(schema.XPreserveUnknownFields, false)
	switch {
	case schema.Items != nil:
		s.rest = shapeOf(schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		s.rest = shapeOf(schema.AdditionalProperties.Schema)
	}
	return s
}

// decode reads an object, and refuses one with a part longer than its schema allows. The API server refuses such an
// object before it asks the webhook. Other clients have not asked the API server, and some rules take quadratic time.
func (s *shape) decode(raw []byte, object any) error {
	err := s.check(raw)
	if err == nil {
		err = utiljson.Unmarshal(raw, object) // it accepts one spelling of a field, as the shape does
	}
	if err != nil {
		return fmt.Errorf("reading the object, %w", err)
	}
	return nil
}

// decodeStrictly decodes an object, and reports whether its Go type lacks any of the object's fields.
func (s *shape) decodeStrictly(raw []byte, object any) (lacks bool, err error) {
	var strict []error
	if err = s.check(raw); err == nil {
		strict, err = kjson.UnmarshalStrict(raw, object)
	}
	if err != nil {
		err = fmt.Errorf("reading the object, %w", err)
	}
	return len(strict) > 0, err
}

// check returns an error if a part of an object is longer than its schema allows.
func (s *shape) check(raw []byte) error {
	if len(raw) <= smallBytes {
		return nil
	}
	w := &walk{Decoder: json.NewDecoder(bytes.NewReader(raw))}
	return w.value(s)
}

// unknown returns the fields of an object that its schema does not name and keeps.
func (s *shape) unknown(raw []byte) ([]rules.UnknownField, error) {
	object := map[string]any{}
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("reading the object, %w", err)
	}
	return s.fields["spec"].unknownIn(nil, field.NewPath("spec"), "spec", object["spec"]), nil
}

// unknownIn appends the unknown fields below a place in an object. inSchema is the place with [] for the items of lists.
func (s *shape) unknownIn(found []rules.UnknownField, place *field.Path, inSchema string, value any) []rules.UnknownField {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			found = s.rest.unknownIn(found, place.Index(i), inSchema+"[]", item)
		}
	case map[string]any:
		known := slices.Sorted(maps.Keys(s.fields))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if named, is := s.fields[name]; is {
				found = named.unknownIn(found, place.Child(name), inSchema+"."+name, value[name])
			} else if s.keepsUnknown {
				found = append(found, rules.UnknownField{
					Path: place.Child(name), Block: inSchema, Name: name, Value: value[name], Known: known,
				})
			}
		}
	}
	return found
}

// walk reads JSON. path is the current place in it.
type walk struct {
	*json.Decoder
	path []string
}

func (w *walk) value(s *shape) error {
	token, err := w.Token()
	size := int64(0)
	switch token := token.(type) {
	case string:
		size = int64(utf8.RuneCountInString(token))
	case json.Delim:
		for ; err == nil && size <= s.most && w.More(); size++ {
			err = w.child(s, token == '{')
		}
		if err == nil && size <= s.most {
			_, err = w.Token() // its end
		}
	}
	if err == nil && size > s.most {
		err = fmt.Errorf("%s is longer than the %d of its schema: shorten it", strings.Join(w.path, "."), s.most)
	}
	return err
}

// child reads the next item of a list, or the next key and value of an object.
func (w *walk) child(s *shape, named bool) error {
	if !named {
		return w.value(s.rest)
	}
	key, err := w.Token()
	if err != nil {
		return err
	}
	name, _ := key.(string)
	w.path = append(w.path, name)
	if err = w.value(cmp.Or(s.fields[name], s.rest)); err == nil {
		w.path = w.path[:len(w.path)-1]
	}
	return err
}
