// Which view is shown, and who may look.

import { get, key, locked } from "./api.js";
import { announce, field, h } from "./shared/dom.js";
import { applyScheme, schemeSelect } from "./shared/scheme.js";
import { keysView } from "./views/keys.js";
import { logView } from "./views/log.js";
import { overviewView } from "./views/overview.js";
import { playgroundView } from "./views/playground.js";
import { routesView } from "./views/routes.js";
import { settingsView } from "./views/settings.js";

const VIEWS = {
  overview: ["Overview", overviewView],
  keys: ["Keys and budgets", keysView],
  log: ["Live log", logView],
  routes: ["Routes", routesView],
  playground: ["Playground", playgroundView],
  settings: ["Settings", settingsView],
};
const STORED_SCHEME = "headrace-admin-scheme";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const foot = document.getElementById("foot");
let stop = () => {};
let about = null;

function frame() {
  nav.replaceChildren(
    ...Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: `#${name}` }, title)),
  );
  foot.replaceChildren(
    schemeSelect(STORED_SCHEME),
    key.get()
      ? h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: () => {
              key.forget();
              lock();
            },
          },
          "Lock",
        )
      : "",
    h("small", {}, `version ${about.version}`),
  );
}

function lock(message = "") {
  stop();
  stop = () => {};
  nav.replaceChildren();
  foot.replaceChildren();
  const input = h("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const said = h("p", { class: "bad", role: "alert" }, message);
  const form = h(
    "form",
    {
      class: "login",
      onsubmit: async (event) => {
        event.preventDefault();
        const given = input.value.trim();
        if (!/^[\x21-\x7e]+$/.test(given)) {
          said.textContent =
            "A key has only letters, digits and punctuation marks, no spaces.";
          return;
        }
        key.set(given);
        await open();
      },
    },
    h("h1", {}, "headrace gateway"),
    field("Admin key", input, "The key that admin.key in the gateway's file names. It stays in this tab."),
    h("button", { class: "primary" }, "Open"),
    said,
  );
  main.replaceChildren(form);
  document.body.classList.add("locked");
  input.focus();
}

async function open() {
  try {
    about = await get("about");
  } catch (error) {
    const fresh = error.code === "no_key";
    if (error.status === 401) key.forget();
    lock(fresh ? "" : error.message);
    return;
  }
  document.body.classList.remove("locked");
  frame();
  show();
}

function show() {
  if (!about) return;
  const [name] = location.hash.slice(1).split("/");
  if (name === "main") return;
  const chosen = VIEWS[name] ? name : "overview";
  for (const link of nav.children) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  stop();
  const [title, view] = VIEWS[chosen];
  document.title = `${title} · headrace gateway`;
  const root = h("section", { class: `view ${chosen}`, "aria-label": title });
  main.replaceChildren(root);
  announce(title);
  stop = view(root, about) || (() => {});
}

locked.addEventListener("locked", (event) => {
  if (document.body.classList.contains("locked")) return;
  key.forget();
  about = null;
  lock(event.detail.message);
});
window.addEventListener("hashchange", show);
applyScheme(STORED_SCHEME);
open();
