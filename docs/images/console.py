#!/usr/bin/env python3
"""Makes the pictures of the console from `thalweg demo`, in headless Chromium.

    docs/images/console.py target/release/thalweg [--for SECONDS]

The demonstration runs for SECONDS (290) before the first picture, so that plots have something to show.
"""

import argparse
import base64
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PICTURES = {"console-overview.png": "overview", "console-flows.png": "flows?view=sankey"}
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
           "--remote-debugging-pipe"]
WIDTH = 1440
LOOK_S = 0.1
# The router answers, and nothing is on its way.
THERE = ("document.querySelector('.bar .state.good') && ![...document.querySelectorAll('[role=status]')]"
         ".some((each) => each.textContent.endsWith('…'))")
PATIENCE_S = 60


class Browser:
    """A page of a headless Chromium, driven by its debugging pipe: messages of JSON that end with a zero byte."""

    def __init__(self, profile):
        (theirs_in, self.to), (self.answers, theirs_out) = os.pipe(), os.pipe()

        def place():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        command = ["chromium", *OPTIONS, f"--user-data-dir={profile}"]
        self.child = subprocess.Popen(command, preexec_fn=place, pass_fds=(3, 4), stderr=subprocess.DEVNULL)
        self.reader = os.fdopen(self.answers, "rb")
        self.number, self.session = 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=900, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = bytearray()
            while (byte := self.reader.read(1)) != b"\0":
                if not byte:
                    raise SystemExit("Chromium has ended")
                answer += byte
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                return answer["result"]

    def until(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not self.call("Runtime.evaluate", expression=condition, returnByValue=True)["result"].get("value"):
            if time.monotonic() > end:
                raise SystemExit(f"never: {condition}")
            time.sleep(LOOK_S)

    def picture(self, file):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--for", dest="seconds", type=float, default=290)
    arguments = parser.parse_args()
    command = [arguments.program, "demo", "--port", "0", "--format", "json"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = None
        try:
            console = json.loads(demo.stdout.readline())["console"]
            browser = Browser(profile)
            # The page draws what it has seen, so it is opened first.
            browser.call("Page.navigate", url=f"{console}#/overview")
            time.sleep(arguments.seconds)
            for file, page in PICTURES.items():
                browser.call("Runtime.evaluate", expression=f"location.hash = {json.dumps('#/' + page)}")
                browser.until(THERE)
                browser.picture(FOLDER / file)
        finally:
            if browser:
                browser.child.kill()
                browser.child.wait()
            demo.send_signal(signal.SIGINT)
            demo.wait()


if __name__ == "__main__":
    main()
