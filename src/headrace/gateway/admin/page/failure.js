// Why a view is empty.

import { empty } from "./shared/dom.js";

// Why something could not be loaded, as the gateway reports it, and the remedy where it is known.
export function failure(error) {
  const hints = { no_ledger: "No ledger is kept", no_store: "Keys cannot be made here" };
  return empty(hints[error.code] || "This could not be loaded", error.message);
}
