// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dex is Dex with what a test of sign-in needs: it keeps all in memory, and has the users of its configuration.
// Dex's own command needs a C compiler, and its own users have no groups.
package main

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
)

// config is the file of the only argument, in JSON.
type config struct {
	// Issuer is its URL, with https. It listens there.
	Issuer string
	// Certificate and Key are files for TLS, in PEM. SigningKey is one with the RSA key that signs tokens, in PKCS #8.
	Certificate, Key, SigningKey string
	Clients                      []storage.Client
	// Users by their e-mail addresses.
	Users users
}

type user struct {
	Password string
	Groups   []string
}

// users is a connector.PasswordConnector and a connector.RefreshConnector.
type users map[string]user

// Open implements server.ConnectorConfig.
func (u users) Open(string, *slog.Logger) (connector.Connector, error) { return u, nil }

// Prompt implements connector.PasswordConnector.
func (u users) Prompt() string { return "Email" }

// Login implements connector.PasswordConnector.
func (u users) Login(_ context.Context, _ connector.Scopes, name, password string) (connector.Identity, bool, error) {
	found, known := u[name]
	return connector.Identity{UserID: name, Username: name, Email: name, EmailVerified: true, Groups: found.Groups},
		known && found.Password == password, nil
}

// Refresh implements connector.RefreshConnector.
func (u users) Refresh(_ context.Context, _ connector.Scopes, identity connector.Identity) (connector.Identity, error) {
	return identity, nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: dex FILE")
	}
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("reading %s, %w", os.Args[1], err)
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return err
	}
	signer, err := signingKey(c.SigningKey)
	if err != nil {
		return fmt.Errorf("reading the key that signs tokens, %w", err)
	}
	issuer, err := url.Parse(c.Issuer)
	if err != nil {
		return err
	}
	const kind = "users"
	server.ConnectorsConfig[kind] = func() server.ConnectorConfig { return c.Users }
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	kept := storage.WithStaticClients(memory.New(logger), c.Clients)
	kept = storage.WithStaticConnectors(kept, []storage.Connector{{ID: kind, Type: kind, Name: kind}})
	refreshing, err := server.NewRefreshTokenPolicy(logger, false, "", "", "")
	if err != nil {
		return err
	}
	dex, err := server.NewServerWithKey(context.Background(), server.Config{Issuer: c.Issuer, Storage: kept, RefreshTokenPolicy: refreshing,
		Logger: logger}, signer)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", issuer.Host, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	return http.Serve(listener, dex)
}

func signingKey(file string) (*rsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("it has no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, is := key.(*rsa.PrivateKey)
	if !is {
		return nil, errors.New("it is no RSA key")
	}
	return signer, nil
}
