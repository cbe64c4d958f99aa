//! XDR (RFC 4506) as pieces: typed encoding and decoding without copying payloads
