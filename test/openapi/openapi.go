// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi compares requests and responses with an OpenAPI document.
package openapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// A Document is a valid OpenAPI document.
type Document struct {
	*openapi3.T
	router routers.Router
}

// Load reads a document from a file, for a server at a URL. The test fails if it is no valid document.
func Load(t testing.TB, path, server string) *Document {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document.Servers = openapi3.Servers{{URL: server}}
	router, err := legacy.NewRouter(document)
	if err != nil {
		t.Fatalf("%s is no valid OpenAPI document: %v", path, err)
	}
	return &Document{T: document, router: router}
}

// CheckRequest returns what is wrong with a request with an absolute URL. Its body can be read afterwards.
func (d *Document) CheckRequest(r *http.Request) error {
	input, err := d.input(r)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(r.Context(), input)
}

// CheckResponse returns what is wrong with the response to a request.
func (d *Document) CheckResponse(r *http.Request, status int, header http.Header, body string) error {
	input, err := d.input(r)
	if err != nil {
		return err
	}
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: status, Header: header, Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	return openapi3filter.ValidateResponse(r.Context(), response.SetBodyBytes([]byte(body)))
}

func (d *Document) input(r *http.Request) (*openapi3filter.RequestValidationInput, error) {
	route, parameters, err := d.router.FindRoute(r)
	if err != nil {
		return nil, fmt.Errorf("finding %s %s in the document, %w", r.Method, r.URL, err)
	}
	return &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route, Options: &openapi3filter.Options{AuthenticationFunc: hasToken},
	}, nil
}

// hasToken returns an error unless the request has a bearer token.
func hasToken(_ context.Context, input *openapi3filter.AuthenticationInput) error {
	if !strings.HasPrefix(input.RequestValidationInput.Request.Header.Get("Authorization"), "Bearer ") {
		return input.NewError(errors.New("there is no bearer token"))
	}
	return nil
}
