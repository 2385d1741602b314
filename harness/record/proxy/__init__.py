"""The recording proxy: it records every client of a guest, in any language, and is invisible to the client.

It imports `core` and `transcript`, and judges nothing. Begin with `recorder`. Clients of the proxy are served by
`forwarding`; `self_recording` describes those that need no proxy, and `peer_user` keeps other users out.
"""
