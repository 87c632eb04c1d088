// The page of a notebook that is neither JupyterLab's nor Notebook's. It alone talks to the kernel; what outputs show
// lives in frames of another origin, which hear of widgets through a channel. `config` is what the test says of the host.
"use strict";

const VIEW = "application/vnd.jupyter.widget-view+json";

// ---------------------------------------------------------------- messages of the kernel, as its websocket has them

function encoded(message, buffers) {
  const json = JSON.stringify(message);
  if (buffers.length === 0) return json;
  const parts = [new TextEncoder().encode(json), ...buffers.map(buffer => new Uint8Array(buffer))];
  const head = 4 * (parts.length + 1);
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, head));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, parts.length);
  let at = head;
  parts.forEach((part, number) => {
    view.setUint32(4 * (number + 1), at);
    bytes.set(part, at);
    at += part.length;
  });
  return bytes.buffer;
}

function decoded(data) {
  if (typeof data === "string") return { ...JSON.parse(data), buffers: [] };
  const view = new DataView(data);
  const starts = Array.from({ length: view.getUint32(0) }, (_, number) => view.getUint32(4 * (number + 1)));
  const [json, ...buffers] = starts.map((start, number) => data.slice(start, starts[number + 1]));
  return { ...JSON.parse(new TextDecoder().decode(json)), buffers };
}

class Kernel {
  constructor(id, hear) {
    this.session = crypto.randomUUID();
    this.socket = new WebSocket(`${location.origin.replace("http", "ws")}/api/kernels/${id}/channels`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => hear(decoded(data));
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = () => resolve();
      this.socket.onclose = () => reject(new Error("the kernel's websocket is closed"));
    });
  }

  send(msg_type, content, buffers = []) {
    const date = new Date().toISOString();
    const header = { msg_id: crypto.randomUUID(), msg_type, session: this.session, username: "", date, version: "5.3" };
    const message = { header, parent_header: {}, metadata: {}, content, channel: "shell" };
    this.socket.send(encoded(message, buffers));
    return header.msg_id;
  }
}

// ---------------------------------------------------------------- frames

class OutputFrame {
  constructor() {
    this.element = document.createElement("iframe");
    this.element.setAttribute("sandbox", config.sandbox);
    this.element.src = config.frame;
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.port.onmessage = ({ data }) => void this.hear(data);
    addEventListener("message", ({ source, data }) => {
      if (source === this.element.contentWindow && data === "ready") source.postMessage("channel", "*", [port2]);
    });
    document.body.append(this.element);
  }

  post(message) {
    this.port.postMessage(message);
  }

  async hear({ kind, token, ...message }) {
    if (kind === "height") this.element.style.height = `${message.height}px`;
    else if (kind === "state") this.post({ kind, token, answer: comms.get(message.id) ?? null });
    else if (kind === "source") {
      this.post({ kind, token, answer: await window.widgetSource(message.module, message.version) });
    } else if (kind === "send") {
      const { id, data, buffers } = message;
      waiting.set(kernel.send("comm_msg", { comm_id: id, data }, buffers), () => this.post({ kind: "idle", token }));
    }
  }
}

const frames = [];

function frameOfOutput() {
  if (frames.length === 0 || config.isFramePerOutput) frames.push(new OutputFrame());
  return frames.at(-1);
}

function tellFrames(message) {
  frames.forEach(frame => frame.post(message));
}

// ---------------------------------------------------------------- what the kernel says

const comms = new Map(); // by id: its first state, and what has changed since
const waiting = new Map(); // what is done once the kernel has dealt with a message
const runs = new Map(); // by message: what code has printed, and whether its outputs are shown

function hear({ header: { msg_type }, parent_header: { msg_id: parent }, content, buffers }) {
  const id = content.comm_id;
  if (msg_type === "comm_open") {
    comms.set(id, { data: content.data, buffers, updates: [] });
    tellFrames({ kind: "opened", id });
  } else if (msg_type === "comm_msg") {
    const { data } = content;
    if (data.method === "update") comms.get(id)?.updates.push({ data, buffers });
    tellFrames({ kind: "message", id, data, buffers });
  } else if (msg_type === "comm_close") {
    comms.delete(id);
    tellFrames({ kind: "closed", id });
  } else if (msg_type === "status") {
    tellFrames({ kind: "status", status: content.execution_state });
    if (content.execution_state === "idle") {
      waiting.get(parent)?.();
      waiting.delete(parent);
    }
  } else if (runs.has(parent)) {
    hearRun(runs.get(parent), msg_type, content);
  }
}

const displayed = new Map(); // by display id: the widget that is shown there

function hearRun(run, msg_type, { name, text, traceback, data, metadata, transient }) {
  if (msg_type === "stream") run[name] += text;
  if (msg_type === "error") run.error = traceback.join("\n");
  if (!run.isShown || !["display_data", "execute_result", "update_display_data"].includes(msg_type)) return;
  const [place, widget] = [transient?.display_id, data[VIEW]?.model_id];
  const isNew = msg_type !== "update_display_data" || (widget !== undefined && displayed.get(place) !== widget);
  if (place) displayed.set(place, widget ?? displayed.get(place));
  if (isNew) show(data, metadata); // an update of a picture shows nothing: the widget is there
}

function show(data, metadata) {
  if (VIEW in data) {
    const manager = metadata[VIEW]?.colab?.custom_widget_manager?.url;
    if (config.manager && manager !== config.manager) throw new Error(`a widget that ${manager} manages`);
    frameOfOutput().post({ kind: "render", id: data[VIEW].model_id });
  } else if ("text/html" in data) {
    frameOfOutput().post({ kind: "html", html: data["text/html"] });
  } else {
    document.body.append(data["text/plain"]);
  }
}

/** Runs code as a cell, whose outputs are shown, or beside all cells. */
async function run(code, isShown) {
  const content = { code, silent: false, store_history: isShown, user_expressions: {}, allow_stdin: false };
  const id = kernel.send("execute_request", content);
  const found = { stdout: "", stderr: "", error: null, isShown };
  runs.set(id, found);
  await new Promise(resolve => waiting.set(id, resolve));
  return found;
}

const kernel = new Kernel(config.kernel, hear);
window.host = { run, opened: kernel.opened };
