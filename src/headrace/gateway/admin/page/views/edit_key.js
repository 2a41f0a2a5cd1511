// Changing what a key may do; its secret stays.

import { patch } from "../api.js";
import { dialog, field, h, note } from "../shared/dom.js";
import { moment } from "../format.js";
import { budgetFields, buttons, limitFields, models, number } from "./key_fields.js";

export function editKey(key, done) {
  const own = key.meters.filter((one) => one.model === "*");
  const limits = own.filter((one) => one.limit_name !== "budget");
  const before = own.filter((one) => one.limit_name === "budget" && one.unit === "nusd");
  dialog(`Edit ${key.label || key.id}`, (close) => {
    const label = h("input", { maxlength: 128, autocomplete: "off", value: key.label });
    const may = models(key.models);
    const budgets = (before.length ? before : [undefined]).map(budgetFields);
    const limit = limitFields(Object.fromEntries(limits.map((one) => [one.limit_name, one.limit])));
    const ends = key.expires_ms
      ? `It expires ${moment(key.expires_ms / 1000)}; leave empty to keep that.`
      : "It never expires; leave empty to keep that.";
    const expires = number({ min: 0.01, step: "any" });
    const never = h("input", { type: "checkbox" });
    const endless = field("never ends", never);
    endless.classList.add("check");
    endless.prepend(never);
    const said = h("p", { class: "bad", role: "alert" });
    const go = h("button", { class: "primary" }, "Save");

    const wanted = () => {
      const found = {
        label: label.value.trim(),
        models: may.names(),
        budgets: budgets.map((one) => one.wanted()).filter(Boolean),
      };
      for (const [name, input] of Object.entries(limit.inputs))
        found[name] = input.value === "" ? null : Number(input.value);
      if (never.checked) found.expires_days = null;
      else if (expires.value !== "") found.expires_days = Number(expires.value);
      return found;
    };
    const submit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      said.textContent = "";
      try {
        await patch(`keys/${encodeURIComponent(key.id)}`, wanted());
        close();
        note("The key was changed.");
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
        may.field,
        field("Expires after (days from now)", expires, ends),
        key.expires_ms ? endless : "",
      ),
      h("h3", {}, "Budget"),
      budgets.map((one) => one.row),
      h("p", { class: "quiet" }, "What was spent still counts; a budget with another window starts at zero."),
      h("h3", {}, "Limits"),
      limit.row,
      said,
      buttons(go, close),
    );
  });
}
