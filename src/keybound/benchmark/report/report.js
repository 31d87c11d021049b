"use strict";
// Theme: automatic, light or dark; remembered where the browser lets a file remember.
const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");
let store = null;
try { store = window.localStorage; } catch { /* a file without storage: forget */ }
function dress(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `Theme: ${theme}`;
}
let theme = store?.getItem("keybound-theme") ?? "auto";
if (!themes.includes(theme)) theme = "auto";
dress(theme);
button.hidden = false;
button.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  dress(theme);
  store?.setItem("keybound-theme", theme);
});

// The index follows the reader.
const links = new Map();
for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
const seen = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.isIntersecting ? seen.add(entry.target) : seen.delete(entry.target);
  for (const link of links.values()) link.removeAttribute("aria-current");
  for (const target of seen) links.get(target.id)?.setAttribute("aria-current", "true");
}, { rootMargin: "0px 0px -60% 0px" });
for (const id of links.keys()) {
  const target = document.getElementById(id);
  if (target) watcher.observe(target);
}

// A link to something folded opens it; paper shows everything.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details.item")) folded.open = true;
});
