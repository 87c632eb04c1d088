// The client of the layout worker; a newer request supersedes the one before.

import { Layouter } from "./layouter";
import type { LayoutRequest, LayoutResult } from "./types";

const STUCK_AFTER = 250; // ms: a worker that is still busy then is replaced, not waited for
const SMALL = 60; // items and nets that cost less than a message

interface Pending {
  id: number;
  since: number;
  request: LayoutRequest;
  resolve: (result: LayoutResult | null) => void;
}

export class LayoutClient {
  private worker?: Worker;
  private url?: string;
  private pending?: Pending;
  private starting?: Promise<Worker | undefined>;
  private count = 0;
  private disposed = false;
  private readonly local = new Layouter();

  /** Null when a newer request came first. */
  run(request: LayoutRequest): Promise<LayoutResult | null> {
    this.supersede();
    if (weight(request) <= SMALL || typeof Worker === "undefined") {
      return Promise.resolve(this.local.run(request));
    }
    return new Promise(resolve => {
      const pending = { id: ++this.count, since: performance.now(), request, resolve };
      this.pending = pending;
      if (this.worker) this.post(this.worker, pending);
      else void this.ensureWorker().then(worker => this.pending === pending && this.post(worker, pending));
    });
  }

  private post(worker: Worker | undefined, { id, request }: Pending): void {
    if (worker) worker.postMessage({ id, request });
    else this.fallBack();
  }

  /** The layout at once when it is cheap, else undefined. */
  runNow(request: LayoutRequest): LayoutResult | undefined {
    if (weight(request) > SMALL) {
      return undefined;
    }
    this.supersede();
    return this.local.run(request);
  }

  /** Whether something that may not be shown would fit the canvas at a zoom, at once. */
  canFit(request: LayoutRequest, zoom: number, isLabelled?: boolean): boolean {
    return this.local.canFit(request, zoom, isLabelled);
  }

  /** With labels on lines, as far as that is known before it is drawn. */
  mayFit(request: LayoutRequest, zoom: number): boolean {
    return this.local.mayFit(request, zoom);
  }

  dispose(): void {
    this.disposed = true;
    this.supersede();
    this.stop();
  }

  private supersede(): void {
    const { pending } = this;
    if (!pending) {
      return;
    }
    this.pending = undefined;
    if (performance.now() - pending.since > STUCK_AFTER) {
      this.stop();
    }
    pending.resolve(null);
  }

  private stop(): void {
    this.worker?.terminate();
    this.worker = undefined;
    if (this.url) {
      URL.revokeObjectURL(this.url);
      this.url = undefined;
    }
  }

  private ensureWorker(): Promise<Worker | undefined> {
    this.starting ??= this.start().finally(() => (this.starting = undefined));
    return this.starting;
  }

  /** Undefined where a page's policy forbids workers. Their source is fetched with the first layout that is worth one. */
  private async start(): Promise<Worker | undefined> {
    try {
      const { LAYOUT_WORKER } = await import("../../generated/layout_worker_source");
      if (this.disposed) return undefined;
      this.url = URL.createObjectURL(new Blob([LAYOUT_WORKER], { type: "text/javascript" }));
      this.worker = new Worker(this.url);
      this.worker.onmessage = event => this.receive(event.data as { id: number; result: LayoutResult | null });
      this.worker.onerror = () => this.fallBack();
    } catch {
      this.stop();
    }
    return this.worker;
  }

  private receive({ id, result }: { id: number; result: LayoutResult | null }): void {
    const { pending } = this;
    if (pending?.id === id) {
      this.pending = undefined;
      pending.resolve(result ?? this.local.run(pending.request));
    }
  }

  private fallBack(): void {
    const { pending } = this;
    this.pending = undefined;
    this.stop();
    pending?.resolve(this.local.run(pending.request));
  }
}

/** What there will be to do. */
function weight(request: LayoutRequest): number {
  return request.groups.reduce((sum, { items, nets }) => sum + items.length + nets.length, 0);
}
