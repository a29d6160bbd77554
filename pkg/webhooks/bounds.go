// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
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
	var err error
	if len(raw) > smallBytes {
		w := &walk{Decoder: json.NewDecoder(bytes.NewReader(raw))}
		err = w.value(s)
	}
	if err == nil {
		err = utiljson.Unmarshal(raw, object) // it accepts one spelling of a field, as the shape does
	}
	if err != nil {
		return fmt.Errorf("reading the object, %w", err)
	}
	return nil
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
