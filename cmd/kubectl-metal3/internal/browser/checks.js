// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// What keeps people with a keyboard, a screen reader or weak eyes from using the page. The value is a list of sentences.
(() => {
  const problems = [];
  const say = (element, what) => problems.push(what + ': ' + element.outerHTML.slice(0, 160));
  const hidden = (element) => element.closest('[aria-hidden="true"]') || !element.checkVisibility();

  if (!document.documentElement.lang) problems.push('the page has no language');
  if (!document.title) problems.push('the page has no title');
  for (const [what, count] of [['h1', 1], ['main', 1], ['header', 1]]) {
    const found = document.querySelectorAll(what).length;
    if (found !== count) problems.push(`the page has ${found} ${what}`);
  }
  const ids = new Set();
  for (const element of document.querySelectorAll('[id]')) {
    if (ids.has(element.id)) say(element, 'an id twice');
    ids.add(element.id);
  }
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4')) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(heading, `a heading below none of level ${own - 1}`);
    level = own;
  }

  const textOf = (element) => (element?.textContent || '').trim();
  const nameOf = (element) => element.getAttribute('aria-label') ||
    (element.getAttribute('aria-labelledby') || '').split(' ').filter(Boolean).map((id) => textOf(document.getElementById(id))).join(' ') ||
    [...(element.labels || [])].map(textOf).join(' ') || element.getAttribute('alt') || textOf(element);
  const named = 'a[href], button, input:not([type=hidden]), select, textarea, summary, nav, form, section, [role=region], [role=log], svg[role=img], [tabindex="0"]';
  for (const element of document.querySelectorAll(named)) {
    if (!hidden(element) && !nameOf(element)) say(element, 'no name');
  }
  for (const image of document.querySelectorAll('img')) if (!image.hasAttribute('alt')) say(image, 'no alt');
  for (const svg of document.querySelectorAll('svg')) {
    if (svg.getAttribute('aria-hidden') !== 'true' && svg.getAttribute('role') !== 'img') say(svg, 'a drawing that is neither named nor hidden');
  }
  for (const head of document.querySelectorAll('th')) if (!head.scope) say(head, 'a head of a table without scope');
  for (const table of document.querySelectorAll('table')) {
    if ((table.matches('.issues') || innerWidth < 640) && table.parentElement.scrollWidth > table.parentElement.clientWidth) say(table, 'a table that is wider than the screen');
  }
  for (const tile of document.querySelectorAll('.large .tile')) {
    if (tile.scrollWidth > tile.clientWidth) say(tile, 'a tile that is cut');
  }
  for (const list of document.querySelectorAll('ul, ol')) {
    if ([...list.children].some((child) => child.tagName !== 'LI')) say(list, 'a list with something else in it');
  }

  // Contrast of each text with what is behind it, as WCAG counts it.
  const channels = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!textOf(texts.currentNode) || element.closest('.unseen, .skip, option') || !element.checkVisibility()) continue;
    const front = getComputedStyle(element).color, back = behind(element), key = front + back + getComputedStyle(element).fontSize;
    if (seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [light(channels(front)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) say(element, `contrast ${ratio.toFixed(2)} of ${front} on ${back}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} wide, of ${innerWidth}`);
  return problems;
})();
