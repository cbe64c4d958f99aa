//! `reduce_capture IN.pcap OUT.txt "what was recorded"`: see `rpcrdma_capture::reduce`.

use std::error::Error;

use rpcrdma_capture::reduce::{Keep, pcap_to_text};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, about] = &arguments[..] else { return Err("IN.pcap OUT.txt ABOUT".into()) };
    let text = pcap_to_text(&std::fs::read(input)?, about, &Keep::default())?;
    Ok(std::fs::write(output, text)?)
}
