"""A chat bot in one file: answers `/pacenote RUN_ID` (a verdict) and `/pacenote ack ALERT_ID`, and prints every alert.

`PACENOTE_URL=… PACENOTE_TOKEN=… python alert_bot.py 8090`; point the slash command of Slack or Mattermost to that port.
"""

import json, os, sys, threading, time, urllib.error, urllib.parse, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

API = os.environ["PACENOTE_URL"].rstrip("/") + "/api/v1"
HEADERS = {"Authorization": "Bearer " + os.environ.get("PACENOTE_TOKEN", ""), "Content-Type": "application/json"}


def call(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(API + path, data, HEADERS | headers), timeout=60)


def listen():  # the stream of all alerts; after a break it goes on where it stopped
    seen = {}
    while True:
        try:
            for line in call("/alerts/events", **seen):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    seen = {"Last-Event-ID": value}
                if name == "data":
                    print(json.loads(value)["change"]["kind"], json.loads(value)["alert"]["title"], flush=True)
        except OSError:
            time.sleep(2)


class Command(BaseHTTPRequestHandler):
    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        word, _, alert = form.get("text", "").strip().partition(" ")
        try:
            said = {"by": form.get("user_name", "somebody"), "via": "slash command"}
            answer = json.load(
                call(f"/alerts/{alert}/acknowledge", said) if word == "ack" else call(f"/runs/{word}/verdict")
            )
            text = f"Acknowledged: {answer['title']}" if word == "ack" else answer["text"]
        except urllib.error.HTTPError as error:
            text = json.load(error)["detail"]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"response_type": "in_channel", "text": text}).encode())


threading.Thread(target=listen, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Command).serve_forever()
