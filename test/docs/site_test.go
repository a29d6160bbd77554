// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A sitePage is what the site has at an address.
type sitePage struct {
	title string
	ids   map[string]bool
	links []string
}

// TestSite builds the site. Each page of the documentation is on it and is found by its search, and what it links to is there: on the site,
// or in the repository.
func TestSite(t *testing.T) {
	system.Only(t)
	dir := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), root("hack/site.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("hack/site.sh: %v\n%s", err, output)
	}
	pages := readSite(t, dir)
	files := 0
	for address, page := range pages {
		for _, link := range page.links {
			checkLink(t, dir, pages, address, link)
			if strings.HasPrefix(link, inRepository) {
				files++
			}
		}
	}
	if files < 20 {
		t.Errorf("%d links lead into the repository, to %s: the test does not find them", files, inRepository)
	}

	titles := map[string]bool{}
	for _, page := range pages {
		titles[page.title] = true
	}
	index, err := filepath.Glob(filepath.Join(dir, "*.search-data*.json"))
	if err != nil || len(index) != 1 {
		t.Fatalf("the data of the search are %v, %v", index, err)
	}
	found, err := os.ReadFile(index[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range allPages(t) {
		if !strings.HasPrefix(file, "docs/") && !strings.HasPrefix(file, "designs/") {
			continue
		}
		_, rest, _ := strings.Cut("\n"+read(t, file), "\n# ")
		title, _, _ := strings.Cut(rest, "\n")
		if title = strings.ReplaceAll(title, "`", ""); !titles[title] {
			t.Errorf("no page of the site has the title of %s, %q: add it to site/data/sections.yaml", file, title)
		}
		if !bytes.Contains(found, []byte(strings.ReplaceAll(title, "'", `\u0027`))) && !bytes.Contains(found, []byte(title)) {
			t.Errorf("the search does not know %s, %q", file, title)
		}
	}
}

// readSite reads all pages of a site.
func readSite(t *testing.T, dir string) map[string]sitePage {
	t.Helper()
	pages := map[string]sitePage{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		document, err := html.Parse(bytes.NewReader(content))
		if err != nil {
			return err
		}
		address, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		page := sitePage{ids: map[string]bool{}}
		for node := range document.Descendants() {
			if node.Type == html.ElementNode && node.Data == "h1" && node.FirstChild != nil {
				page.title = node.FirstChild.Data
			}
			for _, attribute := range node.Attr {
				switch attribute.Key {
				case "id":
					page.ids[attribute.Val] = true
				case "href", "src":
					page.links = append(page.links, attribute.Val)
				}
			}
		}
		pages["/"+filepath.ToSlash(address)] = page
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 50 {
		t.Fatalf("the site has the pages %v", slices.Sorted(maps.Keys(pages)))
	}
	return pages
}

const (
	inRepository = "https://github.com/karpenter-provider-metal3/karpenter-provider-metal3/blob/main/"
	indexFile    = "index.html"
)

// checkLink checks where a link of a page goes. What is on other sites is not looked at.
func checkLink(t *testing.T, dir string, pages map[string]sitePage, address, link string) {
	t.Helper()
	if file, ok := strings.CutPrefix(link, inRepository); ok {
		file, _, _ = strings.Cut(file, "#")
		if _, err := os.Stat(root(file)); err != nil {
			t.Errorf("%s links to %s: %v", address, link, err)
		}
		return
	}
	target, err := url.Parse(link)
	if err != nil {
		t.Errorf("%s links to %q: %v", address, link, err)
		return
	}
	if target.Scheme != "" || target.Host != "" {
		return
	}
	to := address
	if target.Path != "" {
		to = path.Join(path.Dir(address), target.Path)
		if path.IsAbs(target.Path) {
			to = path.Clean(target.Path)
		}
		if strings.HasSuffix(target.Path, "/") {
			to = path.Join(to, indexFile)
		}
	}
	if page, ok := pages[to]; ok {
		if target.Fragment != "" && !page.ids[target.Fragment] {
			t.Errorf("%s links to %s: there is no such heading", address, link)
		}
		return
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(to))); err != nil {
		t.Errorf("%s links to %s: %v", address, link, err)
	}
}
