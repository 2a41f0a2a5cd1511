// Replies that are no success, in the words of whoever sent them.

export class ApiError extends Error {
  constructor(status, message, { code, param, retryAfter, body } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
    this.retryAfter = retryAfter;
    this.body = body;
  }
}

// An object like {"error": {"message", "code", "param"}}, or {"error": "message"}.
export function errorIn(status, body, retryAfter) {
  const error =
    body && typeof body.error === "object" && body.error ? body.error : { message: body?.error };
  const { code, param } = error;
  return new ApiError(status, error.message || `HTTP ${status}`, { code, param, retryAfter, body });
}

// The error of a response whose status is not 2xx.
export async function errorOf(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    /* it is not JSON */
  }
  const seconds = Number(response.headers.get("retry-after"));
  return errorIn(response.status, body, seconds > 0 ? seconds : undefined);
}
