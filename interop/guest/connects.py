"""Connects to ports by TCP again and again until a file appears: connects.py STOP ADDRESS PORT...

Each connection is closed at once. A connection that is refused, or does not come within 30 s, ends the program with an error.
The last line says how many came.
"""

import os
import socket
import sys
import time

stop, address, ports = sys.argv[1], sys.argv[2], [int(port) for port in sys.argv[3:]]
count = 0
while not os.path.exists(stop):
    for port in ports:
        socket.create_connection((address, port), timeout=30).close()
        count += 1
    time.sleep(0.05)
print("connections:", count)
