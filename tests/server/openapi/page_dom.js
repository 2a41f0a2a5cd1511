// Runs the page's script without a browser: node page_dom.js APP.JS URL prints what it shows.
// Elements are a tag, children and listeners; requests go to the server at URL.
"use strict";
const fs = require("fs");
const [, , script, server] = process.argv;
const ids = {};

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag.toUpperCase(), children: [], attributes: {}, listeners: {}, value: "" });
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
    if (name !== "id") return;
    if (value in ids) throw new Error(`the id ${value} twice`);
    ids[value] = this;
  }
  addEventListener(name, listener) { (this.listeners[name] ||= []).push(listener); }
  append(...children) {
    if (children.some((one) => typeof one !== "string" && !(one instanceof Element))) {
      throw new Error("neither text nor an element");
    }
    this.children.push(...children);
  }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  hasChildNodes() { return this.children.length > 0; }
  get textContent() {
    return this.children.map((one) => (typeof one === "string" ? one : one.textContent)).join("");
  }
  set textContent(text) { this.children = [String(text)]; }
  all(tag) {
    const inner = this.children.filter((one) => one instanceof Element);
    return inner.flatMap((one) => [...(one.tagName === tag ? [one] : []), ...one.all(tag)]);
  }
}

for (const id of ["key", "state", "version", "about", "contents", "operations", "key-form"]) {
  new Element("div").setAttribute("id", id);
}
const realFetch = fetch;
globalThis.fetch = (path, options) => realFetch(new URL(path, `${server}/docs`), options);
globalThis.document = {
  baseURI: `${server}/docs`,
  createElement: (tag) => new Element(tag),
  getElementById: (id) => ids[id] || null,
};
globalThis.location = { hash: "" };
globalThis.window = { addEventListener() {} };

async function main() {
  (0, eval)(fs.readFileSync(script, "utf8"));
  for (let tries = 0; tries < 100 && !ids.operations.hasChildNodes(); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const operations = ids.operations.all("DETAILS").filter((one) => one.attributes.class === "operation");
  for (const one of operations) {
    one.open = true;
    one.listeners.toggle.forEach((listener) => listener());
  }
  const chat = ids["op-createChatCompletion"];
  const [form] = chat.all("FORM");
  await form.listeners.submit[0]({ preventDefault() {} });
  const [command, text, body] = chat.all("PRE");
  const plain = command.textContent;
  ids.key.value = "sesame";
  ids.key.listeners.input.forEach((listener) => listener());
  console.log(JSON.stringify({
    state: ids.state.textContent, version: ids.version.textContent, operations: operations.length,
    fields: chat.all("TABLE")[0].textContent, status: chat.all("P").at(-1).textContent,
    text: text.textContent, body: body.textContent, command: plain, keyed_command: command.textContent,
  }));
}
main();
