// A frame with outputs: a widget manager of `base`, the module @jupyter-widgets/base. `begin` gets the host's loader.
"use strict";

/** A widget's way to the kernel. */
class Comm {
  constructor(id, ask) {
    Object.assign(this, { comm_id: id, target_name: "jupyter.widget", ask, early: [] });
  }

  deliver(message) {
    if (this.heard) this.heard(message);
    else this.early.push(message);
  }

  on_msg(callback) {
    this.heard = callback;
    this.early.splice(0).forEach(callback);
  }

  on_close(callback) {
    this.closed = callback;
  }

  close() {}

  send(data, callbacks, metadata, buffers = []) {
    const bytes = buffers.map(part =>
      ArrayBuffer.isView(part) ? part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength) : part
    );
    const answered = this.ask("send", { id: this.comm_id, data: JSON.parse(JSON.stringify(data)), buffers: bytes });
    void answered.then(() => callbacks?.iopub?.status?.({ content: { execution_state: "idle" } }));
    return "";
  }
}

class Manager {
  constructor(load, ask) {
    Object.assign(this, { load, ask, models: new Map(), comms: new Map() });
  }

  has_model(id) {
    return this.models.has(id);
  }

  get_model(id) {
    if (!this.models.has(id)) this.models.set(id, this.new_model(id));
    return this.models.get(id);
  }

  async new_model(id) {
    const comm = new Comm(id, this.ask);
    this.comms.set(id, comm);
    const known = await this.ask("state", { id });
    if (!known) throw new Error(`no widget ${id}`);
    const state = {};
    for (const { data, buffers } of [known, ...known.updates]) {
      base.put_buffers(data.state, data.buffer_paths ?? [], buffers);
      Object.assign(state, data.state);
    }
    const { _model_name: name, _model_module: module, _model_module_version: version } = state;
    const Model = await this.loadClass(name, module, version);
    const values = await Model._deserialize_state(state, this);
    const model = new Model(values, { widget_manager: this, model_id: id, comm });
    return Object.assign(model, { name, module });
  }

  async loadClass(name, module, version) {
    const found = (await this.load(module, version))[name];
    if (!found) throw new Error(`${module} has no ${name}`);
    return found;
  }

  create_view(model, options = {}) {
    const make = async () => {
      const View = await this.loadClass(
        ...["name", "module", "module_version"].map(part => model.get(`_view_${part}`))
      );
      const view = new View({ model, options });
      view.listenTo(model, "destroy", view.remove);
      await view.render();
      return view;
    };
    const made = (model.state_change = model.state_change.then(make));
    model.views[base.uuid()] = made;
    return made;
  }

  callbacks() {
    return {};
  }
}

class Signal {
  slots = new Set();
  connect = slot => Boolean(this.slots.add(slot));
  disconnect = slot => this.slots.delete(slot);
  emit = value => this.slots.forEach(slot => slot(this, value));
}

/** What a manager that is made of JupyterLab's knows of the kernel. */
class KernelStatus {
  isDisposed = false;
  connectionStatus = "connected";
  status = "idle";
  statusChanged = new Signal();
  connectionStatusChanged = new Signal();
  disposed = new Signal();
}

/** Begin to show outputs: `makeLoad` makes the loader of modules, `attach` brings a view to the page. */
function begin({ makeLoad, attach, asBuffer, hasKernel, isEager }) {
  let channel;
  let asked = 0;
  const questions = new Map();
  const ask = (kind, message) => {
    const token = ++asked;
    channel.postMessage({ kind, token, ...message });
    return new Promise(resolve => questions.set(token, resolve));
  };
  const manager = new Manager(makeLoad(ask), ask);
  if (hasKernel) manager.kernel = new KernelStatus();

  const fail = error => {
    console.error(error);
    document.body.append(Object.assign(document.createElement("pre"), { className: "failed", textContent: error }));
  };
  const place = () => document.body.appendChild(document.createElement("div"));
  const render = async (id, container) => attach(await manager.create_view(await manager.get_model(id)), container);
  const deeds = {
    render: ({ id }) => void render(id, place()).catch(fail),
    html: ({ html }) => (place().innerHTML = html),
    opened: ({ id }) => isEager && void manager.get_model(id).catch(fail),
    closed: ({ id }) => manager.comms.get(id)?.closed?.({}),
    message: ({ id, data, buffers }) =>
      manager.comms.get(id)?.deliver({ content: { comm_id: id, data }, buffers: buffers.map(asBuffer) }),
    status: ({ status }) => {
      if (hasKernel) manager.kernel.statusChanged.emit((manager.kernel.status = status));
    }
  };
  addEventListener("message", ({ data, ports }) => {
    if (data !== "channel") return;
    [channel] = ports;
    const tell = () => channel.postMessage({ kind: "height", height: document.documentElement.scrollHeight });
    new ResizeObserver(tell).observe(document.body);
    channel.onmessage = ({ data: { kind, token, answer, ...message } }) => {
      questions.get(token)?.(answer);
      questions.delete(token);
      deeds[kind]?.(message);
    };
  });
  parent.postMessage("ready", "*");
}
