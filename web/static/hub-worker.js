// The SharedWorker of all tabs; its name is the address of the stream.
import { Hub } from "./hub.js";

const hub = typeof EventSource === "undefined" ? null : new Hub(self.name);
self.onconnect = ({ ports: [port] }) => hub ? hub.join(port) : port.postMessage({ unable: true });
