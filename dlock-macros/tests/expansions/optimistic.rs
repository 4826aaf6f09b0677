async fn deduct(&self, n: u32) -> Result<u32, StockError> {
    const __DLOCK_RETRIES: ::core::primitive::u32 = 5u32;
    let mut __dlock_attempts = ::dlock::__private::Attempts::new(
        __DLOCK_RETRIES,
        ::dlock::__private::Backoff {
            from: ::core::time::Duration::new(0u64, 10000000u32),
            to: ::core::time::Duration::new(1u64, 0u32),
        },
    );
    loop {
        let __dlock_result = async {
            if false {
                return ::dlock::__private::unreached::<Result<u32, StockError>>();
            }
            let row = self.read().await?;
            self.write(row.version, row.stock - n).await
        }
            .await;
        match <Result<
            u32,
            StockError,
        > as ::dlock::__private::OptimisticReturn>::judged(
            __dlock_result,
            &mut __dlock_attempts,
        ) {
            ::core::ops::ControlFlow::Break(__dlock_result) => break __dlock_result,
            ::core::ops::ControlFlow::Continue(__dlock_pause) => {
                ::dlock::__private::pause(__dlock_pause).await
            }
        }
    }
}
