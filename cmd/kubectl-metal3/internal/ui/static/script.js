// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// The page is complete without this. It follows what changes, keeps ages up to date, and filters without a new page.
'use strict';

const root = document.documentElement;
const frozen = 'frozen' in root.dataset;
const ahead = Date.now() / 1000 - Number(root.dataset.now);

// The words of kubectl for how long ago something was.
function age(seconds) {
  const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const two = (a, unit, b, small) => a + unit + (b ? b + small : '');
  if (s < 120) return s + 's';
  if (m < 10) return two(m, 'm', s % 60, 's');
  if (m < 180) return m + 'm';
  if (h < 8) return two(h, 'h', m % 60, 'm');
  if (h < 48) return h + 'h';
  if (d < 8) return two(d, 'd', h % 24, 'h');
  if (d < 730) return d + 'd';
  return two(Math.floor(d / 365), 'y', d % 365, 'd');
}

function renewAges() {
  const now = Date.now() / 1000 - ahead;
  for (const time of document.querySelectorAll('time[data-age]')) {
    const text = age(now - Date.parse(time.dateTime) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

const find = (attribute, value, within = document) => within.querySelector(`[${attribute}="${CSS.escape(value)}"]`);

// Prepares tables for a narrow screen, on which a row is a card: each cell has the head of its column, and the roles keep it a table for a
// screen reader.
function makeCards(within) {
  for (const table of within.querySelectorAll('table:not(.issues)')) {
    table.classList.add('cards');
    table.setAttribute('role', 'table');
    for (const group of table.children) group.setAttribute('role', 'rowgroup');
    for (const row of table.rows) {
      row.setAttribute('role', 'row');
      for (const cell of row.cells) {
        cell.setAttribute('role', {col: 'columnheader', row: 'rowheader'}[cell.scope] || 'cell');
        if (cell.colSpan === 1) cell.dataset.head = table.tHead.rows[0].cells[cell.cellIndex].textContent;
      }
    }
  }
}

// Replaces a part. Tiles whose state is another are marked, and the focus stays where it was.
function replace(old, html) {
  const holder = document.createElement('template');
  holder.innerHTML = html;
  const part = holder.content.firstElementChild;
  makeCards(part);
  if (!old) return part;
  if (old.matches('.domain')) return old; // what is in it is told as a slot
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  if (focused && old.matches('form')) return old; // somebody is choosing
  for (const tile of part.querySelectorAll('[data-server]')) {
    const before = find('data-server', tile.dataset.server, old);
    if (!before || before.dataset.state !== tile.dataset.state) tile.classList.add('moved');
  }
  const scrolled = old.querySelector('[role="log"]')?.scrollTop;
  old.replaceWith(part);
  if (scrolled) part.querySelector('[role="log"]').scrollTop = scrolled;
  if (focused) {
    const same = focused.id ? part.querySelector('#' + CSS.escape(focused.id)) :
      focused.hasAttribute('href') ? find('href', focused.getAttribute('href'), part) : null;
    (same || document.getElementById('content')).focus({preventScroll: true});
  }
  return part;
}

function apply(told) {
  // The names of parts and slots are sorted: a domain comes before what is in it.
  const made = {};
  for (const [name, html] of Object.entries(told.parts || {})) made[name] = replace(find('data-part', name), html);
  for (const [slot, names] of Object.entries(told.slots || {})) {
    const place = find('data-slot', slot);
    const parts = names.map((name) => made[name] || find('data-part', name)).filter(Boolean);
    if (parts.length !== place.children.length || parts.some((part, i) => part !== place.children[i])) place.replaceChildren(...parts);
  }
  renewAges();
}

let stream;

function follow(have) {
  stream?.close();
  const address = new URL(location.href);
  if (have) address.searchParams.set('have', have);
  const link = document.getElementById('link');
  stream = new EventSource(address);
  stream.onopen = () => { if (link) { link.textContent = 'live'; link.className = ''; } };
  stream.onerror = () => {
    if (!link) return;
    // A browser does not try again after an answer that is no stream: one of a proxy that wants its user to sign in, for instance.
    link.textContent = stream.readyState === EventSource.CLOSED ? 'no connection: load the page again' : 'no connection, trying again';
    link.className = 'lost';
  };
  stream.onmessage = (message) => {
    apply(JSON.parse(message.data));
    if (frozen) stream.close();
  };
}

// A filter is another page: the address is that of the form, and the stream tells its parts.
function filter(form) {
  const chosen = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, '', form.action + (chosen.size ? '?' + chosen : ''));
  follow();
}

document.addEventListener('change', (event) => { if (event.target.form?.matches('.filter')) filter(event.target.form); });
document.addEventListener('submit', (event) => {
  if (!event.target.matches('.filter')) return;
  event.preventDefault();
  filter(event.target);
});

// A page that nobody sees needs no stream: browsers have few for one address.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) stream?.close();
  else if (!frozen) follow();
});

const theme = document.getElementById('theme');
function nameTheme() { theme.textContent = 'Theme: ' + (root.dataset.theme || 'system'); }
theme.addEventListener('click', () => {
  const next = {undefined: 'light', light: 'dark', dark: undefined}[root.dataset.theme];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem('theme', next);
    else localStorage.removeItem('theme');
  } catch { /* a browser that keeps nothing */ }
  nameTheme();
});
theme.hidden = false;
nameTheme();
makeCards(document);

if (!frozen) {
  setInterval(renewAges, 1000);
  if (!document.hidden) follow(document.body.dataset.sum);
}
