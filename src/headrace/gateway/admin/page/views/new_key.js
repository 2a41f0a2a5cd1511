// Making a key, and showing it the one time that it can be seen.

import { post } from "../api.js";
import { dialog, field, h, note, select } from "../shared/dom.js";
import { budgetFields, buttons, limitFields, models, number } from "./key_fields.js";

export function newKey(told, done) {
  dialog("New key", (close) => {
    const label = h("input", { maxlength: 128, required: true, autocomplete: "off" });
    const parents = [
      ["", "none"],
      ...told.groups.map((one) => [`${one.level}\n${one.name}`, `${one.level} ${one.name}`]),
    ];
    const parent = select(parents, "");
    const may = models([]);
    const budget = budgetFields();
    const limits = limitFields();
    const expires = number({ min: 0.01, step: "any", placeholder: "never" });
    const said = h("p", { class: "bad", role: "alert" });
    const go = h("button", { class: "primary" }, "Make the key");

    const wanted = () => {
      const found = {
        label: label.value.trim(),
        models: may.names(),
      };
      if (parent.value) {
        const [level, name] = parent.value.split("\n");
        found[level] = name;
      }
      if (budget.wanted()) found.budgets = [budget.wanted()];
      for (const [name, input] of Object.entries(limits.inputs))
        if (input.value !== "") found[name] = Number(input.value);
      if (expires.value !== "") found.expires_days = Number(expires.value);
      return found;
    };
    const submit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      said.textContent = "";
      try {
        const made = await post("keys", wanted());
        close();
        showKey(made);
        done();
      } catch (error) {
        said.textContent = error.message;
        go.disabled = false;
      }
    };
    return h(
      "form",
      { onsubmit: submit },
      h(
        "div",
        { class: "fields" },
        field("Label", label, "A name for people."),
        field("Belongs to", parent, "Its limits and budgets count too."),
        may.field,
        field("Expires after (days)", expires),
      ),
      h("h3", {}, "Budget"),
      budget.row,
      h("h3", {}, "Limits"),
      limits.row,
      said,
      buttons(go, close),
    );
  });
}

export function showKey(made) {
  dialog(
    "Copy the key now",
    (close) => {
      const shown = h("input", {
        readonly: true,
        value: made.key,
        class: "code",
        "aria-label": "The key",
        onfocus: () => shown.select(),
      });
      const copy = h(
        "button",
        {
          type: "button",
          onclick: async () => {
            shown.select();
            try {
              await navigator.clipboard.writeText(made.key);
              note("Copied.");
            } catch {
              note("The browser does not allow copying here; the key is selected for Ctrl+C.", "warn");
            }
          },
        },
        "Copy",
      );
      return [
        h("p", {}, "It is shown only this once: the gateway keeps only a digest of it."),
        h("div", { class: "row" }, shown, copy),
        h("p", { class: "quiet" }, "Id: ", h("span", { class: "code" }, made.id)),
        h(
          "div",
          { class: "row end" },
          h("button", { type: "button", class: "primary", onclick: close }, "I have it"),
        ),
      ];
    },
    { kind: "small" },
  );
}
