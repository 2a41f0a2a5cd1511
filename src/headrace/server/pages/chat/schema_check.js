// Whether a value fits a JSON schema, by the keywords below. The server holds the answer to the
// whole schema; this shows whether it did, and names the keywords that it does not read.

const isNumber = (value) => typeof value === "number";
const isText = (value) => typeof value === "string";
const length = (text) => [...text].length; // in characters, as the server counts

// Of each keyword: the values that it is about, and what must be true of them.
const LIMITS = {
  minimum: [isNumber, (value, limit) => value >= limit],
  maximum: [isNumber, (value, limit) => value <= limit],
  exclusiveMinimum: [isNumber, (value, limit) => value > limit],
  exclusiveMaximum: [isNumber, (value, limit) => value < limit],
  minLength: [isText, (value, limit) => length(value) >= limit],
  maxLength: [isText, (value, limit) => length(value) <= limit],
  minItems: [Array.isArray, (value, limit) => value.length >= limit],
  maxItems: [Array.isArray, (value, limit) => value.length <= limit],
};
const READ = new Set([
  ...Object.keys(LIMITS),
  "type",
  "enum",
  "const",
  "required",
  "properties",
  "additionalProperties",
  "items",
  "prefixItems",
  "anyOf",
  "$ref",
]);
const SAYS_NOTHING = new Set([
  "$schema",
  "$id",
  "$anchor",
  "$comment",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);
// References followed in a row without a step into the value: more lead in a circle.
const MOST_REFS = 50;
// Schemas met on the way, over all branches: far more than an answer has.
const MOST_STEPS = 100_000;

const ROOT = "the answer";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const TYPES = {
  object: isObject,
  array: Array.isArray,
  string: isText,
  integer: Number.isInteger,
  number: isNumber,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, at) => same(item, b[at]));
  if (!isObject(a) || !isObject(b)) return a === b;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]))
  );
}

// What a reference within the schema leads to; undefined where it leads elsewhere or nowhere.
function target(root, ref) {
  if (ref !== "#" && !ref.startsWith("#/")) return undefined;
  const steps = ref.split("/").slice(1);
  return steps.reduce((schema, step) => {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    return schema && Object.hasOwn(schema, name) ? schema[name] : undefined;
  }, root);
}

// {fault, unread}: the first place where the value does not fit, as words, or null; and the
// keywords that were not read.
export function checkSchema(root, value) {
  const unread = new Set();
  let steps = 0;

  function fault(schema, value, place, refs = 0) {
    if (schema === false) return `${place} is not allowed`;
    if (!isObject(schema)) return null;
    steps += 1;
    if (steps > MOST_STEPS) return unread.add("anyOf") && null;
    for (const name of Object.keys(schema))
      if (!READ.has(name) && !SAYS_NOTHING.has(name)) unread.add(name);
    const types = schema.type === undefined ? [] : [schema.type].flat();
    if (types.length && !types.some((name) => TYPES[name]?.(value)))
      return `${place} is not of type ${types.join(" or ")}`;
    if (schema.enum && !schema.enum.some((item) => same(item, value)))
      return `${place} is not one of the values in enum`;
    if (Object.hasOwn(schema, "const") && !same(schema.const, value))
      return `${place} is not the value of const`;
    for (const [name, [concerns, holds]] of Object.entries(LIMITS))
      if (name in schema && concerns(value) && !holds(value, schema[name]))
        return `${place} is beyond ${name}, which is ${schema[name]}`;
    return (
      inReference(schema, value, place, refs) ??
      inAlternatives(schema, value, place, refs) ??
      (isObject(value) ? inObject(schema, value, place) : null) ??
      (Array.isArray(value) ? inArray(schema, value, place) : null)
    );
  }

  function inReference({ $ref: ref }, value, place, refs) {
    if (ref === undefined) return null;
    const found = refs < MOST_REFS ? target(root, ref) : undefined;
    if (found !== undefined) return fault(found, value, place, refs + 1);
    unread.add("$ref");
    return null;
  }

  function inAlternatives({ anyOf }, value, place, refs) {
    if (!anyOf) return null;
    if (refs >= MOST_REFS) return unread.add("anyOf") && null;
    if (anyOf.some((schema) => fault(schema, value, place, refs + 1) === null)) return null;
    return `${place} fits none of anyOf`;
  }

  function inObject(schema, value, place) {
    const { required = [], properties = {} } = schema;
    // What patterns match is not additional, and patterns are not read.
    const others = schema.patternProperties ? true : schema.additionalProperties;
    const missing = required.find((name) => !Object.hasOwn(value, name));
    if (missing !== undefined) return `${place} has no ${missing}`;
    for (const [name, item] of Object.entries(value)) {
      const known = Object.hasOwn(properties, name) ? properties[name] : others;
      const found = fault(known, item, place === ROOT ? name : `${place}.${name}`);
      if (found) return found;
    }
    return null;
  }

  function inArray({ prefixItems = [], items }, value, place) {
    if (Array.isArray(items)) unread.add("items"); // of drafts before 2020-12
    for (const [at, item] of value.entries()) {
      const schema = at < prefixItems.length ? prefixItems[at] : items;
      const found = fault(schema, item, `${place === ROOT ? "item " : place}[${at}]`);
      if (found) return found;
    }
    return null;
  }

  return { fault: fault(root, value, ROOT), unread: [...unread] };
}
