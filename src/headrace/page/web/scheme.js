// Light or dark, as the system says or as chosen here.

import { select } from "./dom.js";

const SCHEMES = [
  ["", "System colours"],
  ["light", "Light"],
  ["dark", "Dark"],
];

// Applies what was chosen before. stored: the name of its place in this browser.
export function applyScheme(stored) {
  const name = localStorage.getItem(stored) || "";
  if (name) document.documentElement.dataset.scheme = name;
  else delete document.documentElement.dataset.scheme;
  return name;
}

// A choice of the scheme, which takes effect at once.
export function schemeSelect(stored) {
  const choice = select(SCHEMES, applyScheme(stored), () => {
    localStorage.setItem(stored, choice.value);
    applyScheme(stored);
  });
  choice.setAttribute("aria-label", "Colours");
  return choice;
}
