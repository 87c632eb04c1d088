// The base of the panel's model on the browser's side: `messages` is what would reach the kernel besides the traits.

import { FakeKernel, FakeModel } from "./widget_base";

type Handler = (...args: unknown[]) => void;

export { DOMWidgetView } from "./widget_base";

export class DOMWidgetModel extends FakeModel {
  readonly messages: unknown[] = [];
  private readonly receivers: Handler[] = [];

  constructor(state: Record<string, unknown> = {}, kernel: FakeKernel | null = null) {
    super(state, kernel);
  }

  initialize(): void {}

  defaults(): Record<string, unknown> {
    return { _dom_classes: [] };
  }

  override on(name: string, handler: Handler): void {
    if (name === "msg:custom") this.receivers.push(handler);
    else super.on(name, handler);
  }

  override send(content: unknown): void {
    this.messages.push(content);
  }

  /** A custom message from the kernel. */
  deliver({ content, buffers }: { content: unknown; buffers: unknown }): void {
    this.receivers.forEach(receiver => receiver(content, buffers));
  }
}
