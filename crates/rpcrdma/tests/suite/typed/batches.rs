//! DDP-eligible items in a list without a maximum: the type cannot count them.

use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::xdr::Xdr;
use rpcrdma::{Call, CallContext, CallFailure, ClientConfig, Form, ServerConfig};

use super::{MIB, Numbers, On, on_each, serve_with};

/// Stored in the order of the list.
#[derive(Xdr)]
pub struct Item {
    #[xdr(ddp, max = MIB)]
    data: Bytes,
}

/// As many items as fit, so the type cannot count them.
#[derive(Xdr)]
pub struct Batch(#[xdr(list)] Vec<Item>);

rpcrdma::program! {
    mod operations {
        program 0x2000_0053, version 1;
        /// Returns the length of each item.
        fn uncounted = 1, Uncounted(Batch) -> super::Numbers, Idempotent;
        /// Returns the length of each item, of which two may travel in chunks.
        fn counted = 2, Counted(Batch) -> super::Numbers, Idempotent, eligible = 2;
    }
}

struct Lengths;

impl operations::Service for Lengths {
    async fn uncounted(&self, _: &CallContext, batch: Batch) -> Result<Numbers, CallFailure> {
        Ok(Numbers(batch.0.iter().map(|item| u32::try_from(item.data.len()).unwrap()).collect()))
    }

    async fn counted(&self, context: &CallContext, batch: Batch) -> Result<Numbers, CallFailure> {
        self.uncounted(context, batch).await
    }
}

/// RFC 8267 §6 has lists of operations, each of which may have an eligible item. The author states how many travel in
/// chunks of their own. The server takes no more of them, so the client leaves all others in the message.
#[test]
fn a_list_without_a_maximum_moves_as_many_items_as_the_procedure_states() {
    on_each(|on| async move {
        let mut config = ClientConfig::default();
        config.protocol.max_read_chunks = 8;
        let program = Arc::new(operations::serve(Lengths));
        let (client, _) = serve_with(on, program, ServerConfig::default(), config).await;
        for (items, reduced) in [(1, 1), (2, 2), (3, 2)] {
            let batch = || Batch((0..items).map(|_| Item { data: Bytes::from(vec![7; 100_000]) }).collect());
            let whole = vec![100_000; items];
            let by_type =
                client.call_raw(Call::of::<operations::Uncounted>(&batch()).unwrap()).await.unwrap();
            let stated = client.call_raw(Call::of::<operations::Counted>(&batch()).unwrap()).await.unwrap();
            if on == On::Sim {
                let (by_type, stated) = (by_type.travelled.call, stated.travelled.call);
                assert_eq!(by_type.form, Form::Long, "{items}");
                let form = if reduced == items { Form::Reduced } else { Form::Long };
                assert_eq!(stated.form, form, "{items}");
            }
            assert_eq!(by_type.into_results::<operations::Uncounted>().unwrap().0, whole);
            assert_eq!(stated.into_results::<operations::Counted>().unwrap().0, whole);
        }
    });
}
