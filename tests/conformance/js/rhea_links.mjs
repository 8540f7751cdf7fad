// What the programs for rhea share: its events as promises, and receivers that get what they ask for.

// What must come comes within this; only spent when a test fails.
const TIMEOUT_MS = 20_000;

/** The context of the first such event; rejects when one of `failures` comes before, or nothing. */
export function event(emitter, name, failures = []) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => end(reject, new Error(`no ${name}`)), TIMEOUT_MS);
    const good = (context) => end(resolve, context);
    const bad = (context) => end(reject, context.error ?? emitter.error ?? new Error("ended"));
    const end = (settle, value) => {
      clearTimeout(timer);
      emitter.removeListener(name, good);
      for (const failure of failures) emitter.removeListener(failure, bad);
      settle(value);
    };
    emitter.on(name, good);
    for (const failure of failures) emitter.on(failure, bad);
  });
}

export async function receiver(connection, address, options = {}) {
  const link = connection.open_receiver({
    source: { address },
    snd_settle_mode: 0,
    autoaccept: false,
    credit_window: 0,
    ...options,
  });
  await event(link, "receiver_open", ["receiver_error", "receiver_close"]);
  return link;
}

/** The next message, for which a credit is given. */
export function next(link) {
  const message = event(link, "message", ["receiver_error", "receiver_close"]);
  link.add_credit(1);
  return message;
}
