// The settings in force, and reading the file again.

import { get, post } from "../api.js";
import { failure } from "../failure.js";
import { h } from "../shared/dom.js";

function outcome(told) {
  if (!told.changed.length)
    return h("p", { class: "hint good" }, "The file was reloaded. Nothing in it has changed; secrets were read again.");
  return h(
    "div",
    { class: "hint good" },
    h("p", {}, "The file was reloaded and is in force. Changed:"),
    h(
      "ul",
      {},
      told.changed.map((one) =>
        h(
          "li",
          {},
          h("span", { class: "code" }, one),
          told.at_next_start.includes(one) ? " (takes effect at the next start)" : "",
        ),
      ),
    ),
  );
}

export function settingsView(root, about) {
  const said = h("div", { role: "status" });
  const body = h("div", { class: "card" }, h("p", { class: "quiet" }, "Loading"));
  const load = () =>
    get("config").then(
      (told) =>
        body.replaceChildren(
          ...Object.entries(told.settings).map(([name, value]) =>
            value === null || typeof value !== "object"
              ? h(
                  "p",
                  { class: "plain" },
                  `${name}: `,
                  value === null ? "not set" : h("span", { class: "code" }, JSON.stringify(value)),
                )
              : h(
                  "details",
                  { open: ["models", "providers"].includes(name) },
                  h("summary", {}, name),
                  h("pre", { class: "body" }, JSON.stringify(value, null, 2)),
                ),
          ),
        ),
      (error) => body.replaceChildren(failure(error)),
    );
  const reload = h(
    "button",
    {
      type: "button",
      class: "primary",
      onclick: async () => {
        reload.disabled = true;
        try {
          said.replaceChildren(outcome(await post("reload")));
          await load();
        } catch (error) {
          said.replaceChildren(
            h(
              "div",
              { class: "hint bad", role: "alert" },
              h("p", {}, "The file is not valid, so the previous settings stay in force:"),
              h("p", { class: "code" }, error.message),
            ),
          );
        }
        reload.disabled = false;
      },
    },
    "Reload the file",
  );
  root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Settings"),
      h("span", { class: "quiet code" }, about.config_path),
      reload,
    ),
    said,
    h(
      "p",
      { class: "quiet" },
      "In force now, with defaults. Secrets written into the file are not shown; references such as env:NAME are.",
    ),
    body,
  );
  load();
}
