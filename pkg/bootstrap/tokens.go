// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// tokenIDAttempts limits how many IDs are tried when others are taken. There are two thousand million IDs, so a second
// collision means that something is wrong.
const tokenIDAttempts = 5

// EnsureToken returns the Machine's token of the tenant cluster: a server can join by the mode with it until the
// deadline. It makes or renews it. It can be called again at any time, even after a crash between writes: a Machine
// keeps one token. The client must read from the tenant's API server, not from a cache; the deadline is by its clock.
func EnsureToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference, mode v1alpha1.JoinMode,
	deadline time.Time) (Token, error) {
	token, err := ensureToken(ctx, c, machine, mode, deadline)
	if err != nil {
		return Token{}, fmt.Errorf("ensuring the join token of Machine %s/%s, %w", machine.Namespace, machine.Name, err)
	}
	return token, nil
}

func ensureToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference, mode v1alpha1.JoinMode,
	deadline time.Time) (Token, error) {
	if machine.UID == "" {
		return Token{}, errors.New("it has no UID: read it from the API first")
	}
	// 1. The Machine has a token, under any ID.
	existing, err := tokenSecrets(ctx, c, machine)
	if err != nil {
		return Token{}, err
	}
	if len(existing) > 0 {
		return renewToken(ctx, c, machine, mode, &existing[0], deadline)
	}
	// 2. It has none. The ID is derived, so of two concurrent callers one makes the Secret, and one gets AlreadyExists.
	for salt := range tokenIDAttempts {
		token, err := NewToken(TokenID(machine.UID, salt))
		if err != nil {
			return Token{}, err
		}
		secret := TokenSecret(machine, mode, token, deadline)
		err = c.Create(ctx, secret)
		if err == nil {
			return token, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Token{}, fmt.Errorf("creating secret %s, %w", secret.Name, err)
		}
		// 3. The ID is taken: by the other caller, or by another token, which stays as it is.
		taken := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(secret), taken); err != nil {
			return Token{}, fmt.Errorf("reading secret %s, %w", secret.Name, err)
		}
		if taken.Labels[v1alpha1.MachineUIDLabelKey] == string(machine.UID) {
			return renewToken(ctx, c, machine, mode, taken, deadline)
		}
	}
	return Token{}, fmt.Errorf("the %d token IDs derived from its UID are all taken by others", tokenIDAttempts)
}

// renewToken brings an existing Secret up to date. The secret half stays: user data may hold it already.
func renewToken(
	ctx context.Context, c client.Client, machine v1alpha1.MachineReference, mode v1alpha1.JoinMode, secret *corev1.Secret,
	deadline time.Time,
) (Token, error) {
	token, err := tokenOf(secret)
	if err != nil {
		return Token{}, fmt.Errorf("secret %s of namespace %s is damaged, delete it and another is made: %w", secret.Name, secret.Namespace, err)
	}
	want := TokenSecret(machine, mode, token, deadline)
	labels := lo.Assign(secret.Labels, want.Labels)
	if apiequality.Semantic.DeepEqual(secret.Data, want.Data) && maps.Equal(secret.Labels, labels) {
		return token, nil
	}
	// The update carries the resource version from the read: it does not bring back a token that was deleted meanwhile.
	secret.Data, secret.Labels = want.Data, labels
	if err := c.Update(ctx, secret); err != nil {
		return Token{}, fmt.Errorf("renewing secret %s, %w", secret.Name, err)
	}
	return token, nil
}

// DeleteToken deletes the Machine's token from the tenant cluster. A missing token is no error.
func DeleteToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference) error {
	secrets, err := tokenSecrets(ctx, c, machine)
	if err != nil {
		return fmt.Errorf("deleting the join token of Machine %s/%s, %w", machine.Namespace, machine.Name, err)
	}
	for _, secret := range secrets {
		err := c.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the join token of Machine %s/%s, secret %s, %w", machine.Namespace, machine.Name, secret.Name, err)
		}
	}
	return nil
}

func tokenSecrets(ctx context.Context, c client.Reader, machine v1alpha1.MachineReference) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(machine.UID)}); err != nil {
		return nil, fmt.Errorf("listing token secrets, %w", err)
	}
	return slices.DeleteFunc(list.Items, func(secret corev1.Secret) bool { return secret.Type != bootstrapapi.SecretTypeBootstrapToken }), nil
}

// nodeTokenGroup is the group that kubeadm gives the rights of a joining node: to read cluster information, to ask for
// a client certificate, and to have it approved.
const nodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// vclusterTokenLabels are the labels of vCluster's own join tokens. Its endpoint for joining is not published, and may
// serve no other tokens.
var vclusterTokenLabels = map[string]string{"vcluster.loft.sh/token": "true", "vcluster.loft.sh/token-node-type": "worker"}

// TokenSecret returns the Secret that makes the token valid in the tenant cluster until the deadline. The Machine's UID
// is a label, to list its tokens, and its name an annotation, to find a token of a deleted Machine.
func TokenSecret(machine v1alpha1.MachineReference, mode v1alpha1.JoinMode, token Token, deadline time.Time) *corev1.Secret {
	labels := map[string]string{v1alpha1.MachineUIDLabelKey: string(machine.UID)}
	if mode == v1alpha1.JoinVCluster {
		maps.Copy(labels, vclusterTokenLabels)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      bootstraputil.BootstrapTokenSecretName(token.ID()),
			Labels:    labels,
			Annotations: map[string]string{
				v1alpha1.MachineLabelKey: machine.Namespace + "/" + machine.Name,
			},
		},
		Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrapapi.BootstrapTokenIDKey:               []byte(token.ID()),
			bootstrapapi.BootstrapTokenSecretKey:           []byte(token.SecretHalf()),
			bootstrapapi.BootstrapTokenExpirationKey:       []byte(deadline.UTC().Format(time.RFC3339)),
			bootstrapapi.BootstrapTokenDescriptionKey:      fmt.Appendf(nil, "Join of Machine %s/%s", machine.Namespace, machine.Name),
			bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrapapi.BootstrapTokenUsageSigningKey:     []byte("true"),
			bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(nodeTokenGroup),
		},
	}
}

func tokenOf(secret *corev1.Secret) (Token, error) {
	return ParseToken(bootstraputil.TokenFromIDAndSecret(
		string(secret.Data[bootstrapapi.BootstrapTokenIDKey]), string(secret.Data[bootstrapapi.BootstrapTokenSecretKey])))
}

// redacted replaces the secret half of a token wherever one is printed.
const redacted = "****************"

// Token is a bootstrap token, "<id>.<secret>". The ID is public: it names the token's Secret. The secret half gives its
// bearer the right to become a node. A Token hides it from printers, loggers and encoders; Reveal and SecretHalf return
// it. The zero Token is empty and joins nothing.
type Token struct {
	id, secret string
}

// NewToken makes a token with the given ID, six characters of [a-z0-9], and a random secret half.
func NewToken(id string) (Token, error) {
	random, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return Token{}, fmt.Errorf("making a join token, %w", err)
	}
	_, secret, _ := strings.Cut(random, ".")
	return ParseToken(bootstraputil.TokenFromIDAndSecret(id, secret))
}

// ParseToken reads a token in the form "<id>.<secret>", as in a kubeadm configuration. The error does not repeat the
// text, which may be a secret with a typing error.
func ParseToken(text string) (Token, error) {
	if !bootstraputil.IsValidBootstrapToken(text) {
		return Token{}, errors.New("the token must be six characters of [a-z0-9], a dot, and sixteen more")
	}
	id, secret, _ := strings.Cut(text, ".")
	return Token{id: id, secret: secret}, nil
}

// TokenID derives the ID of a Machine's token from its UID, so that a run after a crash looks for the same ID. The
// salt, from 0, gives the next ID if another Machine has an earlier one.
func TokenID(machine types.UID, salt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", machine, salt))
	sum[0] |= 0x80 // so that there are enough digits
	digits := new(big.Int).SetBytes(sum[:]).Text(36)
	return digits[len(digits)-bootstrapapi.BootstrapTokenIDBytes:]
}

// ID returns the public half.
func (t Token) ID() string { return t.id }

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t == Token{} }

// Reveal returns the whole token, only for the document that must have it.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return bootstraputil.TokenFromIDAndSecret(t.id, t.secret)
}

// SecretHalf returns the half that verifies signatures made with the token. Like Reveal, it must not reach a log.
func (t Token) SecretHalf() string { return t.secret }

// String returns the token without its secret half.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	return t.id + "." + redacted
}

// Format prints the token without its secret half for every verb: %#v and %d would otherwise show the fields.
func (t Token) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, t.String())
}

// MarshalText encodes the token without its secret half, also in JSON, so that a structured logger cannot leak it.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
