// The base of the mask editor's model on the browser's side: custom messages with their buffers, and values never sent.

import { FakeKernel, FakeModel } from "./widget_base";

export { DOMWidgetView } from "./widget_base";

type Handler = (...args: unknown[]) => void;

interface CustomMessage {
  readonly content: Record<string, unknown>;
  readonly buffers: Uint8Array[];
}

export class DOMWidgetModel extends FakeModel {
  static serializers: Record<string, unknown> = {};
  readonly messages: CustomMessage[] = [];
  readonly own: Record<string, unknown>;
  state_change: Promise<unknown> = Promise.resolve();
  private readonly receivers: Handler[] = [];
  private latest: Record<string, unknown> = {};

  constructor(state: Record<string, unknown> = {}, kernel: FakeKernel | null = null) {
    super(state, kernel);
    this.own = state;
  }

  initialize(): void {}

  defaults(): Record<string, unknown> {
    return { _dom_classes: [] };
  }

  override on(name: string, handler: Handler): void {
    if (name === "msg:custom") this.receivers.push(handler);
    else super.on(name, handler);
  }

  override set(values: Record<string, unknown>): void {
    this.latest = values;
    super.set(values);
  }

  /** Whether the change that is told of now has this trait too. */
  hasChanged(trait: string): boolean {
    return trait in this.latest;
  }

  get_state(): Record<string, unknown> {
    return { ...this.own };
  }

  set_state(values: Record<string, unknown>): void {
    this.receive(values);
  }

  override send(content: Record<string, unknown>, _callbacks: unknown, buffers: Uint8Array[] = []): void {
    this.messages.push({ content, buffers });
  }

  /** A custom message from the kernel. */
  deliver(content: unknown, ...buffers: Uint8Array[]): void {
    const views = buffers.map(bytes => new DataView(bytes.slice().buffer));
    this.receivers.forEach(receiver => receiver(content, views));
  }
}

export const unpack_models = (value: unknown): Promise<unknown> => Promise.resolve(value);
