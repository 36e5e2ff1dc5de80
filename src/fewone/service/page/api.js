// Talks to the service. The token stays in this tab; every answer that is an error is one line.

export const session = {
  get token() { return sessionStorage.getItem("token") || ""; },
  set token(value) { sessionStorage.setItem("token", value); },
};

export class ServiceError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

function headers() {
  return session.token ? { Authorization: `Bearer ${session.token}` } : {};
}

export async function call(method, path, body) {
  const form = body instanceof FormData;
  const options = { method, headers: headers() };
  if (body !== undefined) {
    options.body = form ? body : JSON.stringify(body);
    if (!form) options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ServiceError(0, "the service does not answer; is it running?");
  }
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new ServiceError(answer.status, told.error || `status ${answer.status}`);
  return told;
}

export async function download(path, name) {
  const answer = await fetch(path, { headers: headers() });
  if (!answer.ok) throw new ServiceError(answer.status, (await answer.json()).error);
  const address = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

export const at = (name) => `/detectors/${encodeURIComponent(name)}`;

// Server-sent events by fetch, because EventSource sends no token. Comes back by itself after an interruption.
export function listen(onEvent, onState) {
  let last = null;
  let stopped = false;
  const abort = new AbortController();
  (async () => {
    while (!stopped) {
      try {
        const extra = last === null ? {} : { "Last-Event-ID": String(last) };
        const answer = await fetch("/events", { headers: { ...headers(), ...extra }, signal: abort.signal });
        if (!answer.ok) throw new Error();
        onState(true);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let held = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          held += value;
          const parts = held.split("\n\n");
          held = parts.pop();
          for (const part of parts) {
            const data = part.split("\n").find((line) => line.startsWith("data: "));
            if (!data) continue;
            const event = JSON.parse(data.slice(6));
            last = event.id;
            onEvent(event);
          }
        }
      } catch { /* gone: try again */ }
      onState(false);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  })();
  return () => { stopped = true; abort.abort(); };
}
